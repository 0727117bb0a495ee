-- Stores a reading unless a newer one stands, and one in the history for each night minute.
-- On the way it forgets what workers had prefetched that are gone.
-- KEYS[1] readings, KEYS[2] history, KEYS[3] what workers prefetched, KEYS[4] workers
-- ARGV[1] milliseconds (of the server, real) that it was taken at, ARGV[2] its night minute, ARGV[3] who took it,
-- ARGV[4] the reading, ARGV[5] the same in short, ARGV[6] milliseconds that the readings are kept, ARGV[7] the history,
-- ARGV[8] how many moments the history keeps
-- returns 1 if it is the newest now, else 0
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local at = tonumber(ARGV[1])
for _, worker in ipairs(redis.call("HKEYS", KEYS[3])) do
    if redis.call("HEXISTS", KEYS[4], worker) == 0 then
        redis.call("HDEL", KEYS[3], worker)
    end
end
redis.call("HSET", KEYS[1], "by:" .. ARGV[3], ARGV[1])
redis.call("PEXPIRE", KEYS[1], ARGV[6])
local stored = tonumber(redis.call("HGET", KEYS[1], "at") or 0)
-- One from the future is of a server whose clock ran ahead of this one's.
if stored >= at and stored <= now + 5000 then
    return 0
end
local last = redis.call("HGET", KEYS[1], "minute")
redis.call("HSET", KEYS[1], "at", ARGV[1], "minute", ARGV[2], "reading", ARGV[4])
if last ~= ARGV[2] then
    redis.call("XADD", KEYS[2], "MAXLEN", "~", ARGV[8], "*", "queues", ARGV[5])
    redis.call("PEXPIRE", KEYS[2], ARGV[7])
end
return 1

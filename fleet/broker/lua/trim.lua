#!lua flags=allow-oom
-- Drops the dead letters of a queue that are too old or too many, oldest first, a bounded number a call; and details
-- whose letter is gone: stock's own maintenance drops letters, and knows of no details. As Redis looks for keys that
-- expired, it looks at a few at random, and on while many of them are left over.
-- Where this server's clock and the caller's disagree one of them leapt, and nobody knows what is old: only what is too
-- many goes.
-- KEYS[1] dead, KEYS[2] dead bodies, KEYS[3] dead details
-- ARGV[1] milliseconds one is kept, ARGV[2] how many are kept, ARGV[3] most to drop now, ARGV[4] wall-clock
-- milliseconds of the caller
-- returns how many letters were dropped
local A_LOOK, AN_HOUR = 50, 3600000
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local most = tonumber(ARGV[3])
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("HLEN", KEYS[2])
redis.call("HLEN", KEYS[3])
local ids = {}
if math.abs(now - tonumber(ARGV[4])) <= AN_HOUR then
    local oldest = string.format("%.0f", now - tonumber(ARGV[1]))
    ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", oldest, "LIMIT", 0, most)
end
local over = math.min(redis.call("ZCARD", KEYS[1]) - #ids - tonumber(ARGV[2]), most - #ids)
if over > 0 then
    for _, id in ipairs(redis.call("ZRANGE", KEYS[1], #ids, #ids + over - 1)) do
        ids[#ids + 1] = id
    end
end
if #ids > 0 then
    redis.call("ZREM", KEYS[1], unpack(ids))
    redis.call("HDEL", KEYS[2], unpack(ids))
    redis.call("HDEL", KEYS[3], unpack(ids))
end
local looked = 0
repeat
    local some, left_over = redis.call("HRANDFIELD", KEYS[3], A_LOOK), {}
    for _, id in ipairs(some) do
        if not redis.call("ZSCORE", KEYS[1], id) then
            left_over[#left_over + 1] = id
        end
    end
    if #left_over > 0 then
        redis.call("HDEL", KEYS[3], unpack(left_over))
    end
    looked = looked + #some
until 4 * #left_over <= #some or looked >= most
return #ids

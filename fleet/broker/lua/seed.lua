-- Begins chains of an elastic entry, each only if no message of that chain is there: waiting, running, or delayed.
-- KEYS[1] chains of the entry, KEYS[2] queue, KEYS[3] bodies of the queue, KEYS[4] awaited queues
-- ARGV[1] wake channel, ARGV[2] name of the queue
-- then four a chain: its number, the id of its last seed as the caller knows it ("" for none), the new seed's id, its
-- encoded message
-- returns the numbers of the chains that began; one whose last seed is another than the caller knows is passed over
-- Refused below, after half of the work, it could not be taken back.
if not redis.acl_check_cmd("PUBLISH", ARGV[1], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[1])
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("HLEN", KEYS[1])
redis.call("LLEN", KEYS[2])
redis.call("HLEN", KEYS[3])
redis.call("SCARD", KEYS[4])
local began = {}
for i = 3, #ARGV, 4 do
    local last = redis.call("HGET", KEYS[1], ARGV[i]) or ""
    -- Its body is what a chain is; nothing else need be kept, and nothing can be left behind.
    local there = last ~= "" and redis.call("HEXISTS", KEYS[3], last) == 1
    if last == ARGV[i + 1] and not there and redis.call("HSETNX", KEYS[3], ARGV[i + 2], ARGV[i + 3]) == 1 then
        redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 2])
        redis.call("RPUSH", KEYS[2], ARGV[i + 2])
        began[#began + 1] = ARGV[i]
    end
end
if #began > 0 and redis.call("SREM", KEYS[4], ARGV[2]) == 1 then
    redis.call("PUBLISH", ARGV[1], ARGV[2])
end
return began

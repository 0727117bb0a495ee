#!lua flags=allow-oom
-- Drops the dead letters of a queue that are too old or too many, oldest first, a bounded number a call.
-- KEYS[1] dead, KEYS[2] dead bodies, KEYS[3] dead details
-- ARGV[1] milliseconds one is kept, ARGV[2] how many are kept, ARGV[3] most to drop now
-- returns how many were dropped
local clock = redis.call("TIME")
local oldest = string.format("%.0f", clock[1] * 1000 + math.floor(clock[2] / 1000) - tonumber(ARGV[1]))
local most = tonumber(ARGV[3])
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", oldest, "LIMIT", 0, most)
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
return #ids

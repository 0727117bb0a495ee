#!lua flags=allow-oom
-- Ends one delivery from outside, as a dead letter: whatever its worker still does with it is stale.
-- KEYS[1] acks (stock's) of the worker, KEYS[2] held, KEYS[3] bodies, KEYS[4] dead, KEYS[5] dead bodies,
-- KEYS[6] dead details, KEYS[7] losses, KEYS[8] deaths
-- ARGV[1] id, ARGV[2] number of the delivery, ARGV[3] details
-- returns the encoded message, or false if that delivery has ended; also when it is asked again with the same details
if redis.call("ZSCORE", KEYS[2], ARGV[1]) ~= ARGV[2] then
    return redis.call("HGET", KEYS[6], ARGV[1]) == ARGV[3] and redis.call("HGET", KEYS[5], ARGV[1])
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("HLEN", KEYS[3])
redis.call("ZCARD", KEYS[4])
redis.call("HLEN", KEYS[5])
redis.call("HLEN", KEYS[6])
if redis.call("SREM", KEYS[1], ARGV[1]) == 0 then
    return false
end
redis.call("ZREM", KEYS[2], ARGV[1])
local body = redis.call("HGET", KEYS[3], ARGV[1]) or ""
local clock = redis.call("TIME")
redis.call("ZADD", KEYS[4], string.format("%.0f", clock[1] * 1000 + math.floor(clock[2] / 1000)), ARGV[1])
redis.call("HSET", KEYS[5], ARGV[1], body)
redis.call("HSET", KEYS[6], ARGV[1], ARGV[3])
redis.call("HDEL", KEYS[3], ARGV[1])
-- One of another type holds no count of anybody.
redis.pcall("HDEL", KEYS[7], ARGV[1])
redis.pcall("HDEL", KEYS[8], ARGV[1])
return body

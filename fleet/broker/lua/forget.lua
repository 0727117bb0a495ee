#!lua flags=allow-oom
-- Looks whether a stock worker or producer that fell silent holds anything; one that does not, and has been silent for
-- very long, is taken off stock's record.
-- KEYS[1] heartbeats (stock's), then its acks (stock's), one a queue
-- ARGV[1] its id, ARGV[2] milliseconds of silence after which it is taken off the record
-- returns 1 if it holds something, else 0
if #KEYS > 1 and redis.call("EXISTS", unpack(KEYS, 2)) > 0 then
    return 1
end
local clock = redis.call("TIME")
local last = redis.call("ZSCORE", KEYS[1], ARGV[1])
if last and tonumber(last) < clock[1] * 1000 - tonumber(ARGV[2]) then
    redis.call("ZREM", KEYS[1], ARGV[1])
end
return 0

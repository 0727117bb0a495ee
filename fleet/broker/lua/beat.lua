#!lua flags=allow-oom
-- Says that a worker lives and which queues it serves; a reaped one says nothing more.
-- KEYS[1] tombstone, KEYS[2] beats, KEYS[3] heartbeats (stock's), KEYS[4] workers
-- ARGV[1] worker, ARGV[2] wall-clock milliseconds (for stock's heartbeat alone), ARGV[3] its queues (JSON)
-- returns 1, or 0 for a reaped worker
if redis.call("EXISTS", KEYS[1]) == 1 then
    return 0
end
redis.call("HINCRBY", KEYS[2], ARGV[1], 1)
redis.call("ZADD", KEYS[3], ARGV[2], ARGV[1])
redis.call("HSET", KEYS[4], ARGV[1], ARGV[3])
return 1

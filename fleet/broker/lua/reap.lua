#!lua flags=allow-oom
-- Ends a worker that is known to be gone: what it held returns to the front of its queues, in the order it was fetched,
-- and a tombstone keeps everything that still comes from it from changing anything.
-- KEYS[1] tombstone, KEYS[2] its last turn, KEYS[3] beats, KEYS[4] heartbeats (stock's), KEYS[5] workers
-- then four a queue: queue, bodies, acks (stock's), held
-- ARGV[1] worker, ARGV[2] seconds the tombstone stands, ARGV[3] wake channel, ARGV[4] 1 for a stock worker (it stays on
-- stock's record: it may hold messages of queues that are not given here), ARGV[5] number of queues n, their n names
-- returns how many messages returned
local returned = 0
for queue = 1, tonumber(ARGV[5]) do
    local at = 5 + (queue - 1) * 4
    local list, bodies, acks, held = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4]
    local function back(id)
        if redis.call("SREM", acks, id) == 1 and redis.call("HEXISTS", bodies, id) == 1 then
            redis.call("LPUSH", list, id)
            returned = returned + 1
        end
    end
    local ids = redis.call("ZREVRANGE", held, 0, -1)
    -- What a stock worker fetched has no order; it goes behind what has.
    for _, id in ipairs(redis.call("SMEMBERS", acks)) do
        if not redis.call("ZSCORE", held, id) then
            back(id)
        end
    end
    for _, id in ipairs(ids) do
        back(id)
    end
    redis.call("DEL", held, acks)
    redis.call("PUBLISH", ARGV[3], ARGV[5 + queue])
end
redis.call("SET", KEYS[1], "1", "EX", ARGV[2])
redis.call("DEL", KEYS[2])
redis.call("HDEL", KEYS[3], ARGV[1])
if ARGV[4] ~= "1" then
    redis.call("ZREM", KEYS[4], ARGV[1])
end
redis.call("HDEL", KEYS[5], ARGV[1])
return returned

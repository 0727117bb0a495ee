#!lua flags=allow-oom
-- One turn of a worker process: ends some of its messages, promotes what is due, and fetches more. All or nothing, and
-- allowed when memory is full, since ending messages is what frees it.
-- KEYS[1] tombstone of the worker, KEYS[2] its last turn, KEYS[3] beats, KEYS[4] heartbeats (stock's), KEYS[5] workers
-- then ten a queue: queue, bodies, acks (stock's), held, delayed, .DQ list, .DQ bodies, dead, dead bodies, dead details
-- ARGV[1] worker, ARGV[2] number of the turn, ARGV[3] how many messages are wanted, ARGV[4] wall-clock milliseconds of
-- the worker (for stock's heartbeat alone), ARGV[5] most delayed messages to promote a queue, ARGV[6] wake channel,
-- ARGV[7] seconds a turn is remembered, ARGV[8] how many of the queues (the first ones) to promote and fetch from,
-- ARGV[9] all queues the worker serves (JSON), ARGV[10] number of queues n, then their n names
-- then five an end: kind, index of the queue, id, and two values by kind:
--   done: -, -          drop: -, -          back: -, - (to the front)
--   retry: encoded message, delay in milliseconds          dead: encoded message ("" for the stored one), details
-- returns "fenced" for a reaped worker, "old" for a number already passed, or
-- {which ends changed something ("1" or "0" each), milliseconds until the next delay is due (-1: none), then three a
-- message fetched: index of its queue, id, encoded message}
-- A turn whose number is the last one's is a repeat: it ends and fetches nothing new, and answers what the first did.
local HEAD, WIDTH = 5, 10
local worker, number, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call("EXISTS", KEYS[1]) == 1 then
    return "fenced"
end
redis.call("HINCRBY", KEYS[3], worker, 1)
redis.call("ZADD", KEYS[4], ARGV[4], worker)

local looked_at, queues = tonumber(ARGV[8]), tonumber(ARGV[10])
local function key(queue, place)
    return KEYS[HEAD + (queue - 1) * WIDTH + place]
end
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local stamp = string.format("%.0f", now)

local function bodies_of(pairs_of, answer)
    for i = 1, #pairs_of, 2 do
        local queue, id = tonumber(pairs_of[i]), pairs_of[i + 1]
        answer[#answer + 1] = tostring(queue)
        answer[#answer + 1] = id
        answer[#answer + 1] = redis.call("HGET", key(queue, 2), id) or ""
    end
    return answer
end

local last = redis.call("HMGET", KEYS[2], "number", "flags", "ids")
if not last[1] then
    -- Before it holds anything: who reaps a worker must know where to look.
    redis.call("HSET", KEYS[5], worker, ARGV[9])
end
if last[1] and number < tonumber(last[1]) then
    return "old"
end
if last[1] and number == tonumber(last[1]) then
    local still, ids = {}, cmsgpack.unpack(last[3])
    for i = 1, #ids, 2 do
        if redis.call("SISMEMBER", key(tonumber(ids[i]), 3), ids[i + 1]) == 1 then
            still[#still + 1] = ids[i]
            still[#still + 1] = ids[i + 1]
        end
    end
    return bodies_of(still, {last[2], "0"})
end

local flags, wake = {}, {}
local ends = {
    done = function(queue, id)
        redis.call("HDEL", key(queue, 2), id)
    end,
    back = function(queue, id)
        if redis.call("HEXISTS", key(queue, 2), id) == 1 then
            redis.call("LPUSH", key(queue, 1), id)
            wake[queue] = true
        end
    end,
    retry = function(queue, id, body, delay)
        redis.call("HSET", key(queue, 2), id, body)
        redis.call("ZADD", key(queue, 5), string.format("%.0f", now + tonumber(delay)), id)
        wake[queue] = true
    end,
    dead = function(queue, id, body, details)
        if body == "" then
            body = redis.call("HGET", key(queue, 2), id) or ""
        end
        redis.call("HDEL", key(queue, 2), id)
        redis.call("ZADD", key(queue, 8), stamp, id)
        redis.call("HSET", key(queue, 9), id, body)
        redis.call("HSET", key(queue, 10), id, details)
    end,
}
ends.drop = ends.done
for i = 11 + queues, #ARGV, 5 do
    local queue, id = tonumber(ARGV[i + 1]), ARGV[i + 2]
    if redis.call("SREM", key(queue, 3), id) == 1 then
        redis.call("ZREM", key(queue, 4), id)
        ends[ARGV[i]](queue, id, ARGV[i + 3], ARGV[i + 4])
        flags[#flags + 1] = "1"
    else
        flags[#flags + 1] = "0"
    end
end

local LATEST = 2 ^ 53
-- Delayed messages of stock producers move over, with their own due time; one that cannot be read is due at once.
local function drain_stock_delays(queue)
    for _ = 1, tonumber(ARGV[5]) do
        local id = redis.call("LPOP", key(queue, 6))
        if not id then
            return
        end
        local body = redis.call("HGET", key(queue, 7), id)
        if body then
            redis.call("HDEL", key(queue, 7), id)
            redis.call("HSETNX", key(queue, 2), id, body)
            local read, message = pcall(cjson.decode, body)
            local eta = read and type(message) == "table" and type(message.options) == "table" and message.options.eta
            -- Neither NaN nor infinity is a time.
            local is_time = type(eta) == "number" and eta > -LATEST and eta < LATEST
            redis.call("ZADD", key(queue, 5), is_time and string.format("%.0f", eta) or "0", id)
        end
    end
end

local due = -1
for queue = 1, looked_at do
    drain_stock_delays(queue)
    local ready = redis.call("ZRANGEBYSCORE", key(queue, 5), "-inf", stamp, "LIMIT", 0, ARGV[5])
    if #ready > 0 then
        redis.call("ZREM", key(queue, 5), unpack(ready))
        redis.call("RPUSH", key(queue, 1), unpack(ready))
        wake[queue] = true
    end
    local next = redis.call("ZRANGE", key(queue, 5), 0, 0, "WITHSCORES")
    if next[2] then
        local left = math.max(0, tonumber(next[2]) - now)
        due = due < 0 and left or math.min(due, left)
    end
end

-- An equal share of each queue in the order given, then whatever is left, until enough is fetched or all are empty.
local fetched, empty = {}, {}
local share = math.max(1, math.ceil(wanted / math.max(1, looked_at)))
while wanted > 0 and #empty < looked_at do
    empty = {}
    for queue = 1, looked_at do
        local ids = wanted > 0 and redis.call("LPOP", key(queue, 1), math.min(share, wanted)) or false
        if not ids or #ids == 0 then
            empty[#empty + 1] = queue
        else
            for i = 1, #ids do
                -- An id can stand twice in the list: a stock producer's client repeats a push whose reply was lost. One
                -- whose body is gone ended already, and one that this worker holds already is not another message.
                if redis.call("HEXISTS", key(queue, 2), ids[i]) == 1 and redis.call("SADD", key(queue, 3), ids[i]) == 1 then
                    wanted = wanted - 1
                    redis.call("ZADD", key(queue, 4), redis.call("HINCRBY", KEYS[2], "sequence", 1), ids[i])
                    fetched[#fetched + 1] = queue
                    fetched[#fetched + 1] = ids[i]
                end
            end
        end
    end
end
for queue, _ in pairs(wake) do
    if redis.call("LLEN", key(queue, 1)) > 0 or redis.call("EXISTS", key(queue, 5)) == 1 then
        redis.call("PUBLISH", ARGV[6], ARGV[10 + queue])
    end
end
local joined = table.concat(flags)
redis.call("HSET", KEYS[2], "number", ARGV[2], "flags", joined, "ids", cmsgpack.pack(fetched))
redis.call("EXPIRE", KEYS[2], ARGV[7])
return bodies_of(fetched, {joined, string.format("%.0f", due)})

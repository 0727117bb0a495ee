#!lua flags=allow-oom
-- One turn of a worker process: ends some of its messages, promotes what is due, and fetches more. All or nothing, and
-- allowed when memory is full, since ending messages is what frees it.
-- KEYS[1] tombstone of the worker, KEYS[2] its last turn, KEYS[3] beats, KEYS[4] heartbeats (stock's), KEYS[5] workers,
-- KEYS[6] awaited queues
-- then twelve a queue: queue (or its suspects), bodies, acks (stock's), held, delayed, .DQ list, .DQ bodies, dead, dead
-- bodies, dead details, losses, deaths
-- ARGV[1] worker, ARGV[2] number of the turn, ARGV[3] how many messages are wanted, ARGV[4] wall-clock milliseconds of
-- the worker (for stock's heartbeat alone), ARGV[5] most delayed messages to promote a queue (0: none), ARGV[6] wake channel,
-- ARGV[7] seconds a turn is remembered, ARGV[8] how many of the queues (the first ones) to promote and fetch from,
-- ARGV[9] all queues the worker serves (JSON), ARGV[10] number of queues n, then their n names
-- then six an end: kind, index of the queue, id, number of the delivery, and two values by kind:
--   done: -, -          drop: -, -          back: -, - (to the front)
--   retry: encoded message, delay in milliseconds          dead: encoded message ("" for the stored one), details
-- returns "fenced" for a reaped worker, "old" for a number already passed, or
-- {a flag an end ("1" it is written, "0" another delivery's or nobody's, "e" its queue is broken), milliseconds until
-- the next delay is due (-1: none; 0 also where more may wait behind ids without a body), what is broken (a line a queue:
-- its index, a space, the key and its error), then four a message fetched: index of its queue, id, number of the
-- delivery, encoded message}
-- A turn whose number is the last one's is a repeat: it ends and fetches nothing new, and answers what the first did.
-- A queue one of whose keys is no longer of its type is broken: nothing of it moves, and the others go on.
local HEAD, WIDTH = 6, 12
local worker, number, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call("EXISTS", KEYS[1]) == 1 then
    return "fenced"
end
-- Refused below, after half of the turn, it would strand what was fetched.
if not redis.acl_check_cmd("PUBLISH", ARGV[6], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[6])
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

local function bodies_of(deliveries, answer)
    for i = 1, #deliveries, 3 do
        local queue, id = deliveries[i], deliveries[i + 1]
        answer[#answer + 1] = tostring(queue)
        answer[#answer + 1] = id
        answer[#answer + 1] = deliveries[i + 2]
        answer[#answer + 1] = redis.call("HGET", key(queue, 2), id) or ""
    end
    return answer
end

local ASKS = {"LLEN", "HLEN", "SCARD", "ZCARD", "ZCARD", "LLEN", "HLEN", "ZCARD", "HLEN", "HLEN", "HLEN", "HLEN"}
-- The server's own error does not say which key it is about.
local function named(queue, failure)
    for place, command in ipairs(ASKS) do
        local answer = redis.pcall(command, key(queue, place))
        if type(answer) == "table" and string.find(answer.err, "^WRONGTYPE") then
            return key(queue, place) .. ": " .. answer.err
        end
    end
    return failure
end

local broken = {}
local function guarded(queue, work, ...)
    local done, answer = pcall(work, queue, ...)
    if not done then
        broken[queue] = broken[queue] or named(queue, type(answer) == "table" and answer.err or tostring(answer))
    end
    return done, answer
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
    for i = 1, #ids, 3 do
        if redis.call("ZSCORE", key(ids[i], 4), ids[i + 1]) == ids[i + 2] then
            for part = i, i + 2 do
                still[#still + 1] = ids[part]
            end
        end
    end
    return bodies_of(still, {last[2], "0", ""})
end

-- A key of another type must be found before the first write: the turn would be asked for anew, and fetch anew.
if wanted > 0 then
    redis.call("SCARD", KEYS[6])
end

local flags, wake = {}, {}
-- Each has found a key of another type before its first write, so that it is written whole or not at all.
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
        redis.call("ZCARD", key(queue, 5))
        redis.call("HSET", key(queue, 2), id, body)
        redis.call("ZADD", key(queue, 5), string.format("%.0f", now + tonumber(delay)), id)
        wake[queue] = true
    end,
    dead = function(queue, id, body, details)
        if body == "" then
            body = redis.call("HGET", key(queue, 2), id) or ""
        end
        redis.call("HLEN", key(queue, 2))
        redis.call("HLEN", key(queue, 9))
        redis.call("HLEN", key(queue, 10))
        redis.call("ZADD", key(queue, 8), stamp, id)
        redis.call("HSET", key(queue, 9), id, body)
        redis.call("HSET", key(queue, 10), id, details)
        redis.call("HDEL", key(queue, 2), id)
    end,
}
ends.drop = ends.done
-- A message that ended, however, is no suspect any more. A key of another type holds no mark of anybody, and an end
-- that is written must be said to be.
local marked = {}
local function acquit(queue, id)
    if marked[queue] == nil then
        marked[queue] = redis.call("EXISTS", key(queue, 11), key(queue, 12)) > 0
    end
    if marked[queue] then
        redis.pcall("HDEL", key(queue, 11), id)
        redis.pcall("HDEL", key(queue, 12), id)
    end
end
local function settle(queue, kind, id, delivery, first, second)
    -- The number tells this delivery from a later one of the same message to the same worker.
    if redis.call("ZSCORE", key(queue, 4), id) ~= delivery then
        return "0"
    elseif redis.call("SREM", key(queue, 3), id) == 0 then
        redis.call("ZREM", key(queue, 4), id)
        return "0"
    elseif not guarded(queue, ends[kind], id, first, second) then
        redis.call("SADD", key(queue, 3), id)
        return "e"
    end
    redis.call("ZREM", key(queue, 4), id)
    if kind ~= "back" then
        acquit(queue, id)
    end
    return "1"
end
for i = 11 + queues, #ARGV, 6 do
    local known, flag = guarded(tonumber(ARGV[i + 1]), settle, ARGV[i], unpack(ARGV, i + 2, i + 5))
    flags[#flags + 1] = known and flag or "e"
end

local LATEST = 2 ^ 53
-- Delayed messages of stock producers move over, with their own due time; one that cannot be read is due at once.
local function drain_stock_delays(queue)
    if redis.call("LLEN", key(queue, 6)) == 0 then
        return
    end
    -- What an error struck half-way would stand nowhere.
    redis.call("HLEN", key(queue, 2))
    redis.call("ZCARD", key(queue, 5))
    redis.call("HLEN", key(queue, 7))
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
local function promote(queue)
    drain_stock_delays(queue)
    local first = redis.call("ZRANGE", key(queue, 5), 0, 0, "WITHSCORES")
    if first[2] and tonumber(first[2]) <= now then
        local ready = redis.call("ZRANGEBYSCORE", key(queue, 5), "-inf", stamp, "LIMIT", 0, ARGV[5])
        redis.call("RPUSH", key(queue, 1), unpack(ready))
        redis.call("ZREM", key(queue, 5), unpack(ready))
        wake[queue] = true
        first = redis.call("ZRANGE", key(queue, 5), 0, 0, "WITHSCORES")
    end
    if first[2] then
        local left = math.max(0, tonumber(first[2]) - now)
        due = due < 0 and left or math.min(due, left)
    end
end
for queue = 1, tonumber(ARGV[5]) > 0 and looked_at or 0 do
    guarded(queue, promote)
end

-- Ids without a body that one turn passes over: a million of them would keep everybody waiting for seconds.
local MOST_PASSED_OVER = 1000
local fetched, empty, passed_over = {}, {}, 0
-- A delivery is numbered by its turn and its place there, both of which the worker knows: a count kept here would begin
-- again where a failover forgot the last ones, and name two deliveries alike.
local A_TURN = 65536
local function look(queue)
    redis.call("HLEN", key(queue, 2))
    redis.call("SCARD", key(queue, 3))
    redis.call("ZCARD", key(queue, 4))
end
local function take(queue, ids)
    if not guarded(queue, look) then
        for back = #ids, 1, -1 do
            redis.call("LPUSH", key(queue, 1), ids[back])
        end
        return
    end
    for i = 1, #ids do
        -- An id can stand twice in the list: a stock producer's client repeats a push whose reply was lost. One whose
        -- body is gone ended already, and one that this worker holds already is not another message.
        local is_there = redis.call("HEXISTS", key(queue, 2), ids[i]) == 1
        if is_there and redis.call("SADD", key(queue, 3), ids[i]) == 1 then
            local delivery = string.format("%.0f", number * A_TURN + #fetched / 3)
            wanted = wanted - 1
            redis.call("ZADD", key(queue, 4), delivery, ids[i])
            fetched[#fetched + 1] = queue
            fetched[#fetched + 1] = ids[i]
            fetched[#fetched + 1] = delivery
        else
            passed_over = passed_over + 1
        end
    end
end
-- An equal share of each queue in the order given, then whatever is left, until enough is fetched or all are empty.
local share = math.max(1, math.ceil(wanted / math.max(1, looked_at)))
local function fetch(queue)
    local ids = redis.call("LPOP", key(queue, 1), math.min(share, wanted)) or {}
    if #ids == 0 then
        empty[#empty + 1] = ARGV[10 + queue]
    else
        take(queue, ids)
    end
end
local asleep = 0
while wanted > 0 and asleep < looked_at and passed_over < MOST_PASSED_OVER do
    empty, asleep = {}, 0
    for queue = 1, looked_at do
        if wanted > 0 and not broken[queue] then
            guarded(queue, fetch)
        end
        if broken[queue] then
            asleep = asleep + 1
        end
    end
    asleep = asleep + #empty
end
if passed_over >= MOST_PASSED_OVER then
    due = 0
end
if #empty > 0 then
    redis.call("SADD", KEYS[6], unpack(empty))  -- the next message of each must wake whoever sleeps
end
for queue, _ in pairs(wake) do
    local there, more = pcall(function()
        return redis.call("LLEN", key(queue, 1)) > 0 or redis.call("EXISTS", key(queue, 5)) == 1
    end)
    if there and more then
        redis.call("PUBLISH", ARGV[6], ARGV[10 + queue])
    end
end
local joined, said = table.concat(flags), {}
for queue, failure in pairs(broken) do
    said[#said + 1] = queue .. " " .. failure
end
redis.call("HSET", KEYS[2], "number", ARGV[2], "flags", joined, "ids", cmsgpack.pack(fetched))
redis.call("EXPIRE", KEYS[2], ARGV[7])
return bodies_of(fetched, {joined, string.format("%.0f", due), table.concat(said, "\n")})

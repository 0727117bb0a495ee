#!lua flags=allow-oom
-- Ends a worker that is known to be gone: what it held returns to the front of its queues, in the order it was fetched,
-- and a tombstone keeps everything that still comes from it from changing anything. Each message it held counts a loss;
-- one whose body the process died in counts a death, and is a suspect: it waits apart, to run alone. So does one with
-- too many losses, whatever their cause. A suspect that dies alone once too often is a dead letter; where nobody saw it
-- die, only deaths that nobody saw count, for a host may vanish with an innocent. Where a process that ran a suspect is
-- gone and it is not plain by whose doing, a mark says that suspects are to run one at a time for a while.
-- A queue one of whose keys is no longer of its type is broken: what the worker held of it stays held, and the worker on
-- record, so that a reaper comes again until the key is mended. What the worker died of is not known then.
-- KEYS[1] tombstone, KEYS[2] its last turn, KEYS[3] beats, KEYS[4] heartbeats (stock's), KEYS[5] workers
-- then eleven a queue: queue, bodies, acks (stock's), held, suspects, losses, deaths, dead, dead bodies, dead details,
-- the mark that suspects run one at a time
-- ARGV[1] worker, ARGV[2] seconds the tombstone stands, ARGV[3] wake channel, ARGV[4] 1 for a stock worker (it stays on
-- stock's record: it may hold messages of queues that are not given here), ARGV[5] 1 for one that runs suspects,
-- ARGV[6] what it died of ("" if that is not known, nor what it was in), ARGV[7] losses that make a suspect (0: none do),
-- ARGV[8] deaths that condemn, ARGV[9] seconds losses and deaths are kept, ARGV[10] now (ISO 8601), ARGV[11] seconds
-- that suspects run one at a time, ARGV[12] number of queues n, their n names, then two a message whose body it died
-- in: index of its queue, id
-- returns {how many returned, what is broken (a line a queue: its index, a space, the key and its error), then three a
-- message that is set apart: index of its queue, id, the verdict on it ("" for a suspect)}
local HEAD, WIDTH = 5, 11
local alone, cause, kept = ARGV[5] == "1", ARGV[6], ARGV[9]
local queues = tonumber(ARGV[12])
local in_body = {}
for i = 13 + queues, #ARGV, 2 do
    in_body[ARGV[i] .. " " .. ARGV[i + 1]] = true
end
local returned, apart, broken = 0, {}, {}
local LOST = "lost" -- instead of a cause, where nobody saw it
local DELAYS = ".DQ" -- how the name of a delay queue of stock's ends

-- Refused below, after half of the work, it could not be taken back.
if not redis.acl_check_cmd("PUBLISH", ARGV[3], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[3])
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("HLEN", KEYS[3])
redis.call("ZCARD", KEYS[4])
redis.call("HLEN", KEYS[5])

local function key(queue, place)
    return KEYS[HEAD + (queue - 1) * WIDTH + place]
end

local function condemn(queue, id, verdict)
    local clock = redis.call("TIME")
    local details = { reason = verdict, exception = "-", traceback = "", worker = ARGV[1], died = ARGV[10] }
    local died = string.format("%.0f", clock[1] * 1000 + math.floor(clock[2] / 1000))
    redis.call("ZADD", key(queue, 8), died, id)
    redis.call("HSET", key(queue, 9), id, redis.call("HGET", key(queue, 2), id))
    redis.call("HSET", key(queue, 10), id, cjson.encode(details))
    redis.call("HDEL", key(queue, 2), id)
    redis.call("HDEL", key(queue, 6), id)
    redis.call("HDEL", key(queue, 7), id)
end

-- Counts a loss, and a death if it was one; returns whether the message is set apart, and the verdict if there is one.
local function judge(queue, id)
    local losses = redis.call("HINCRBY", key(queue, 6), id, 1)
    redis.call("EXPIRE", key(queue, 6), kept)
    -- Of a worker that ran one message alone and is gone with its board, that message is what it died of.
    if not in_body[queue .. " " .. id] and not (alone and cause == "") then
        return alone or (tonumber(ARGV[7]) > 0 and losses >= tonumber(ARGV[7]))
    end
    local causes = redis.call("HGET", key(queue, 7), id)
    causes = (causes and causes .. ", " or "") .. (cause == "" and LOST or cause)
    redis.call("HSET", key(queue, 7), id, causes)
    redis.call("EXPIRE", key(queue, 7), kept)
    local deaths, unseen = 0, 0
    for one in (causes .. ", "):gmatch("(.-), ") do
        deaths, unseen = deaths + 1, unseen + (one == LOST and 1 or 0)
    end
    if alone and (cause == "" and unseen or deaths) >= tonumber(ARGV[8]) then
        return true, string.format("poison: killed %d processes (%s)", deaths, causes)
    end
    return true
end

local function ask(command, one)
    local answer = redis.pcall(command, one)
    if type(answer) == "table" and answer.err then
        error(one .. ": " .. answer.err, 0) -- the server's own error does not say which key it is about
    end
    return answer
end

-- All that is written below; an error there would strand what was taken off the worker and stands nowhere yet.
local function look(queue, delays)
    ask("ZCARD", key(queue, 4))
    if ask("SCARD", key(queue, 3)) == 0 then
        return -- it holds nothing of this queue
    end
    ask("LLEN", key(queue, 1))
    ask("HLEN", key(queue, 2))
    if not delays then
        ask("LLEN", key(queue, 5))
        ask("HLEN", key(queue, 6))
        ask("HLEN", key(queue, 7))
        if alone then -- else nothing is condemned
            ask("ZCARD", key(queue, 8))
            ask("HLEN", key(queue, 9))
            ask("HLEN", key(queue, 10))
        end
    end
end

local function back(queue, id, delays)
    if redis.call("SREM", key(queue, 3), id) == 0 or redis.call("HEXISTS", key(queue, 2), id) == 0 then
        return
    end
    local set_apart, verdict = false, nil
    if not delays then -- what a stock worker waited with had not begun
        set_apart, verdict = judge(queue, id)
    end
    if verdict then
        condemn(queue, id, verdict)
    elseif set_apart then
        redis.call("RPUSH", key(queue, 5), id)
        if alone and not in_body[queue .. " " .. id] then
            redis.call("SET", key(queue, 11), "1", "EX", ARGV[11])
        end
    else
        redis.call("LPUSH", key(queue, 1), id)
        returned = returned + 1
    end
    if set_apart then
        apart[#apart + 1] = tostring(queue)
        apart[#apart + 1] = id
        apart[#apart + 1] = verdict or ""
    end
end

local function give_back(queue, name, delays)
    local acks, held, before = key(queue, 3), key(queue, 4), returned
    local ids = redis.call("ZREVRANGE", held, 0, -1)
    -- What a stock worker fetched has no order; it goes behind what has.
    for _, id in ipairs(redis.call("SMEMBERS", acks)) do
        if not redis.call("ZSCORE", held, id) then
            back(queue, id, delays)
        end
    end
    for _, id in ipairs(ids) do
        back(queue, id, delays)
    end
    redis.call("DEL", held, acks)
    -- Nobody of ours serves a delay queue: who serves the queue itself fetches from it on the way.
    if not delays then
        redis.call("PUBLISH", ARGV[3], name)
    elseif returned > before then
        redis.call("PUBLISH", ARGV[3], name:sub(1, -1 - #DELAYS))
    end
end

for queue = 1, queues do
    local name = ARGV[12 + queue]
    local delays = name:sub(-#DELAYS) == DELAYS
    local sound, failure = pcall(look, queue, delays)
    if sound then
        give_back(queue, name, delays)
    else
        broken[#broken + 1] = queue .. " " .. tostring(failure)
    end
end
redis.call("SET", KEYS[1], "1", "EX", ARGV[2])
redis.call("DEL", KEYS[2])
if ARGV[4] ~= "1" then
    redis.call("ZREM", KEYS[4], ARGV[1])
end
if #broken == 0 then
    redis.call("HDEL", KEYS[3], ARGV[1])
    redis.call("HDEL", KEYS[5], ARGV[1])
end
local answer = { tostring(returned), table.concat(broken, "\n") }
for _, part in ipairs(apart) do -- `unpack` takes 8,000 at most
    answer[#answer + 1] = part
end
return answer

#!lua flags=allow-oom
-- Ends a worker that is known to be gone: what it held returns to the front of its queues, in the order it was fetched,
-- and a tombstone keeps everything that still comes from it from changing anything. Each message it held counts a loss;
-- one whose body the process died in counts a death, and is a suspect: it waits apart, to run alone. So does one with
-- too many losses, whatever their cause. A suspect that dies alone once too often is a dead letter; where nobody saw it
-- die, only deaths that nobody saw count, for a host may vanish with an innocent. Where a process that ran a suspect is
-- gone and it is not plain by whose doing, a mark says that suspects are to run one at a time for a while.
-- KEYS[1] tombstone, KEYS[2] its last turn, KEYS[3] beats, KEYS[4] heartbeats (stock's), KEYS[5] workers
-- then eleven a queue: queue, bodies, acks (stock's), held, suspects, losses, deaths, dead, dead bodies, dead details,
-- the mark that suspects run one at a time
-- ARGV[1] worker, ARGV[2] seconds the tombstone stands, ARGV[3] wake channel, ARGV[4] 1 for a stock worker (it stays on
-- stock's record: it may hold messages of queues that are not given here), ARGV[5] 1 for one that runs suspects,
-- ARGV[6] what it died of ("" if that is not known, nor what it was in), ARGV[7] losses that make a suspect (0: none do),
-- ARGV[8] deaths that condemn, ARGV[9] seconds losses and deaths are kept, ARGV[10] now (ISO 8601), ARGV[11] seconds
-- that suspects run one at a time, ARGV[12] number of queues n, their n names, then two a message whose body it died
-- in: index of its queue, id
-- returns {how many returned, then three a message that is set apart: index of its queue, id, the verdict on it
-- ("" for a suspect)}
local alone, cause, kept = ARGV[5] == "1", ARGV[6], ARGV[9]
local queues = tonumber(ARGV[12])
local in_body = {}
for i = 13 + queues, #ARGV, 2 do
    in_body[ARGV[i] .. " " .. ARGV[i + 1]] = true
end
local returned, apart = 0, {}
local LOST = "lost" -- instead of a cause, where nobody saw it

local function condemn(queue, id, verdict)
    local at = 5 + (queue - 1) * 11
    local clock = redis.call("TIME")
    local details = { reason = verdict, exception = "-", traceback = "", worker = ARGV[1], died = ARGV[10] }
    redis.call("ZADD", KEYS[at + 8], string.format("%.0f", clock[1] * 1000 + math.floor(clock[2] / 1000)), id)
    redis.call("HSET", KEYS[at + 9], id, redis.call("HGET", KEYS[at + 2], id))
    redis.call("HSET", KEYS[at + 10], id, cjson.encode(details))
    redis.call("HDEL", KEYS[at + 2], id)
    redis.call("HDEL", KEYS[at + 6], id)
    redis.call("HDEL", KEYS[at + 7], id)
end

-- Counts a loss, and a death if it was one; returns whether the message is set apart, and the verdict if there is one.
local function judge(queue, id)
    local at = 5 + (queue - 1) * 11
    local losses = redis.call("HINCRBY", KEYS[at + 6], id, 1)
    redis.call("EXPIRE", KEYS[at + 6], kept)
    -- Of a worker that ran one message alone and is gone with its board, that message is what it died of.
    if not in_body[queue .. " " .. id] and not (alone and cause == "") then
        return alone or (tonumber(ARGV[7]) > 0 and losses >= tonumber(ARGV[7]))
    end
    local causes = redis.call("HGET", KEYS[at + 7], id)
    causes = (causes and causes .. ", " or "") .. (cause == "" and LOST or cause)
    redis.call("HSET", KEYS[at + 7], id, causes)
    redis.call("EXPIRE", KEYS[at + 7], kept)
    local deaths, unseen = 0, 0
    for one in (causes .. ", "):gmatch("(.-), ") do
        deaths, unseen = deaths + 1, unseen + (one == LOST and 1 or 0)
    end
    if alone and (cause == "" and unseen or deaths) >= tonumber(ARGV[8]) then
        return true, string.format("poison: killed %d processes (%s)", deaths, causes)
    end
    return true
end

for queue = 1, queues do
    local at = 5 + (queue - 1) * 11
    local list, bodies, acks, held = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4]
    local function back(id)
        if redis.call("SREM", acks, id) == 0 or redis.call("HEXISTS", bodies, id) == 0 then
            return
        end
        local set_apart, verdict = judge(queue, id)
        if verdict then
            condemn(queue, id, verdict)
        elseif set_apart then
            redis.call("RPUSH", KEYS[at + 5], id)
            if alone and not in_body[queue .. " " .. id] then
                redis.call("SET", KEYS[at + 11], "1", "EX", ARGV[11])
            end
        else
            redis.call("LPUSH", list, id)
            returned = returned + 1
        end
        if set_apart then
            apart[#apart + 1] = tostring(queue)
            apart[#apart + 1] = id
            apart[#apart + 1] = verdict or ""
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
    redis.call("PUBLISH", ARGV[3], ARGV[12 + queue])
end
redis.call("SET", KEYS[1], "1", "EX", ARGV[2])
redis.call("DEL", KEYS[2])
redis.call("HDEL", KEYS[3], ARGV[1])
if ARGV[4] ~= "1" then
    redis.call("ZREM", KEYS[4], ARGV[1])
end
redis.call("HDEL", KEYS[5], ARGV[1])
return { tostring(returned), unpack(apart) }

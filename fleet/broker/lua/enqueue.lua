-- Accepts messages, each once. A call that repeats its sender's last one changes nothing: by then its messages may have
-- run and ended, so that their ids look new again. Messages of the outbox are marked as they are accepted, and while
-- its mark stands an id is not new, however often it comes and whatever became of it.
-- KEYS[1] the sender's last call, KEYS[2] awaited queues, then three a queue: queue, bodies, delayed; then the marks, if
-- these messages are to be marked
-- ARGV[1] wake channel, ARGV[2] delay in milliseconds ("" for none), ARGV[3] this call's id, ARGV[4] seconds it is
-- remembered, ARGV[5] number of queues n, ARGV[6] seconds that a mark stands at least
-- then a queue after the other: its name, how many messages, and two a message: id, encoded message
-- returns how many were new
if redis.call("GET", KEYS[1]) == ARGV[3] then
    return 0
end
-- Refused below, after half of the work, it could not be taken back.
if not redis.acl_check_cmd("PUBLISH", ARGV[1], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[1])
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
for i = 3, 3 * ARGV[5], 3 do
    redis.call("LLEN", KEYS[i])
    redis.call("HLEN", KEYS[i + 1])
    redis.call("ZCARD", KEYS[i + 2])
end
redis.call("SCARD", KEYS[2])
local marks, now = KEYS[3 + 3 * ARGV[5]], nil
if marks then
    now = tonumber(redis.call("TIME")[1])
    -- Whoever marked these died before it could take the marks away; a bounded number a call.
    local old = redis.call("ZRANGEBYSCORE", marks, "-inf", now - ARGV[6], "LIMIT", 0, 100)
    if #old > 0 then
        redis.call("ZREM", marks, unpack(old))
    end
end

local function push(list, name, new)
    redis.call("RPUSH", list, unpack(new))
    -- Whoever found the queue empty since it was last woken for sleeps; while nobody did, nobody need be woken.
    return redis.call("SREM", KEYS[2], name) == 1
end

local function delay(delayed, new)
    local clock = redis.call("TIME")
    local due = string.format("%.0f", clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[2]))
    for i = 1, #new do
        redis.call("ZADD", delayed, due, new[i])
    end
    -- A consumer sleeps until the earliest delay it knows of; only an earlier one must wake it.
    local first = redis.call("ZRANGE", delayed, 0, 0)[1]
    for i = 1, #new do
        if first == new[i] then
            return true
        end
    end
    return false
end

local at, accepted = 7, 0
for queue = 1, tonumber(ARGV[5]) do
    local place = queue * 3
    local name, last, new = ARGV[at], at + 1 + 2 * tonumber(ARGV[at + 1]), {}
    for i = at + 2, last, 2 do
        local unmarked = not marks or redis.call("ZADD", marks, "NX", now, ARGV[i]) == 1
        if unmarked and redis.call("HSETNX", KEYS[place + 1], ARGV[i], ARGV[i + 1]) == 1 then
            new[#new + 1] = ARGV[i]
        end
    end
    if #new > 0 then
        local wake
        if ARGV[2] == "" then
            wake = push(KEYS[place], name, new)
        else
            wake = delay(KEYS[place + 2], new)
        end
        if wake then
            redis.call("PUBLISH", ARGV[1], name)
        end
    end
    at, accepted = last + 1, accepted + #new
end
if marks then
    redis.call("EXPIRE", marks, 2 * ARGV[6])
end
redis.call("SET", KEYS[1], ARGV[3], "EX", ARGV[4])
return accepted

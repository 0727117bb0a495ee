-- Gives a verdict on all slots of an entry from its mark to a new one, and sends the messages of those that fire: all
-- of it, or nothing.
-- KEYS[1] leader, KEYS[2] epoch, KEYS[3] schedule, KEYS[4] marks, KEYS[5] paused, KEYS[6] runs, KEYS[7] runs by hand
-- KEYS[8] ledger of the entry, KEYS[9] queue, KEYS[10] bodies of the queue, KEYS[11] awaited queues
-- ARGV[1] token, ARGV[2] epoch, ARGV[3] generation of the schedule that the caller knows, ARGV[4] entry
-- ARGV[5] the mark expected (milliseconds)
-- ARGV[6] the real instant that the caller goes by and ARGV[7] the night's at it (milliseconds), ARGV[8] night
-- milliseconds a real one
-- ARGV[9] real milliseconds by which a slot may be early, ARGV[10] by which the server's TIME may be off the caller's
-- ARGV[11] "skip" or "allow" overlap, ARGV[12] length the ledger is capped to, ARGV[13] wake channel
-- ARGV[14] name of the queue
-- then nine a line, oldest first: the verdict proposed, first slot, last slot, count, number of the revision, when the
-- last slot is due and when it expires (night), message id and encoded message ("" but for a slot that fires)
-- returns "done" and the verdict on each line; or what stands in the way, having changed nothing: "deposed" (the caller
-- does not lead in this term), "revised" (the schedule is another one), "moved" (the mark is not the expected one),
-- "leapt" (the server's clock is far off the caller's: it leapt since it was last heard, or the caller was stopped) or
-- "early" (by the server's clock a slot has not come, or one has not expired that was proposed so)
if redis.call("GET", KEYS[1]) ~= ARGV[1] or redis.call("GET", KEYS[2]) ~= ARGV[2] then
    return {"deposed"}
end
if redis.call("HGET", KEYS[3], "generation") ~= ARGV[3] then
    return {"revised"}
end
if redis.call("HGET", KEYS[4], ARGV[4]) ~= ARGV[5] then
    return {"moved"}
end
local clock = redis.call("TIME")
local real, rate = clock[1] * 1000 + clock[2] / 1000, tonumber(ARGV[8])
if math.abs(real - tonumber(ARGV[6])) > tonumber(ARGV[10]) then
    return {"leapt"}
end
local now = tonumber(ARGV[7]) + (real - tonumber(ARGV[6])) * rate
local paused = redis.call("HEXISTS", KEYS[5], ARGV[4]) == 1
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("XLEN", KEYS[8])
redis.call("LLEN", KEYS[9])
redis.call("HLEN", KEYS[10])
redis.call("SCARD", KEYS[11])
local runs = {redis.call("HGET", KEYS[6], ARGV[4]), redis.call("HGET", KEYS[7], ARGV[4])}

-- The run before still goes while its body is there: nothing else need be kept, and nothing can be left behind.
local going = false
for i = 1, 2 do
    going = going or (runs[i] and redis.call("HEXISTS", KEYS[10], runs[i]) == 1)
end

local mark, verdicts, fires = tonumber(ARGV[5]), {}, false
for i = 15, #ARGV, 9 do
    local verdict, due, expires = ARGV[i], tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
    if tonumber(ARGV[i + 1]) <= mark or tonumber(ARGV[i + 2]) < tonumber(ARGV[i + 1]) then
        return redis.error_reply("ERR slots of " .. ARGV[4] .. " are not in order behind its mark")
    end
    if due > now + tonumber(ARGV[9]) * rate or (verdict == "expired" and now <= expires) then
        return {"early"}
    end
    if paused then
        verdict = "paused"
    elseif now > expires then
        verdict = "expired"
    elseif verdict == "fired" then
        if going and ARGV[11] == "skip" then
            verdict = "overlapped"
        end
        going, fires = true, fires or verdict == "fired"
    end
    verdicts[#verdicts + 1] = verdict
    mark = tonumber(ARGV[i + 2])
end
-- Refused below, after half of the work, it could not be taken back.
if fires and not redis.acl_check_cmd("PUBLISH", ARGV[13], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[13])
end

-- Marks that went back where Redis forgot look like any others; this count does not.
redis.call("HINCRBY", KEYS[3], "judged", 1)
for number, verdict in ipairs(verdicts) do
    local i = 15 + (number - 1) * 9
    -- The same slot's message may be there already where Redis forgot that it was sent.
    if verdict == "fired" then
        if redis.call("HSETNX", KEYS[10], ARGV[i + 7], ARGV[i + 8]) == 1 then
            redis.call("RPUSH", KEYS[9], ARGV[i + 7])
        end
        redis.call("HSET", KEYS[6], ARGV[4], ARGV[i + 7])
    end
    redis.call("XADD", KEYS[8], "MAXLEN", "~", ARGV[12], "*", "verdict", verdict, "from", ARGV[i + 1], "to",
        ARGV[i + 2], "count", ARGV[i + 3], "revision", ARGV[i + 4], "token", ARGV[1], "epoch", ARGV[2])
    redis.call("HSET", KEYS[4], ARGV[4], ARGV[i + 2])
end
-- Whoever found the queue empty since it was last woken for sleeps; while nobody did, nobody need be woken.
if fires and redis.call("SREM", KEYS[11], ARGV[14]) == 1 then
    redis.call("PUBLISH", ARGV[13], ARGV[14])
end
return {"done", unpack(verdicts)}

-- Accepts messages of one queue, each once. A call that repeats its sender's last one changes nothing: by then its
-- messages may have run and ended, so that their ids look new again.
-- KEYS[1] queue, KEYS[2] bodies, KEYS[3] delayed, KEYS[4] the sender's last call
-- ARGV[1] wake channel, ARGV[2] name of the queue, ARGV[3] delay in milliseconds ("" for none),
-- ARGV[4] this call's id, ARGV[5] seconds it is remembered
-- then two a message: id, encoded message
-- returns how many were new
if redis.call("GET", KEYS[4]) == ARGV[4] then
    return 0
end
local new = {}
for i = 6, #ARGV, 2 do
    if redis.call("HSETNX", KEYS[2], ARGV[i], ARGV[i + 1]) == 1 then
        new[#new + 1] = ARGV[i]
    end
end
local wake = false
if #new > 0 and ARGV[3] == "" then
    -- A consumer that sleeps has found the queue empty: only the first message after that must wake it.
    wake = redis.call("RPUSH", KEYS[1], unpack(new)) == #new
elseif #new > 0 then
    local clock = redis.call("TIME")
    local due = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[3])
    for i = 1, #new do
        redis.call("ZADD", KEYS[3], string.format("%.0f", due), new[i])
    end
    -- A consumer sleeps until the earliest delay it knows of; only an earlier one must wake it.
    local first = redis.call("ZRANGE", KEYS[3], 0, 0)[1]
    for i = 1, #new do
        wake = wake or first == new[i]
    end
end
if wake then
    redis.call("PUBLISH", ARGV[1], ARGV[2])
end
redis.call("SET", KEYS[4], ARGV[4], "EX", ARGV[5])
return #new

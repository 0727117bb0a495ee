-- What a pass begins with: the time, and which schedule is stored.
-- KEYS[1] schedule
-- ARGV[1] digest of the caller's schedule
-- returns the server's seconds and microseconds, generation and digest of the stored schedule ("" for none), and how
-- often processes with that schedule have looked; how often fire.lua has judged
local clock = redis.call("TIME")
local stored = redis.call("HMGET", KEYS[1], "generation", "digest", "looks", "judged")
if stored[2] == ARGV[1] then
    redis.call("HINCRBY", KEYS[1], "looks", 1)
end
return {clock[1], clock[2], stored[1] or "", stored[2] or "", stored[3] or "0", stored[4] or "0"}

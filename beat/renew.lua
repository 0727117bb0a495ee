-- Prolongs a term, if it is still the caller's: its lock and its epoch.
-- KEYS[1] leader, KEYS[2] epoch
-- ARGV[1] token, ARGV[2] epoch, ARGV[3] ttl in milliseconds
-- returns 1, or 0 if the term is no longer the caller's
if redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("GET", KEYS[2]) == ARGV[2] then
    return redis.call("PEXPIRE", KEYS[1], ARGV[3])
end
return 0

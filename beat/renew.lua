-- Prolongs a term, if it is still the caller's.
-- KEYS[1] leader
-- ARGV[1] token, ARGV[2] ttl in milliseconds
-- returns 1, or 0 if the term is no longer the caller's
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
return 0

-- Ends a term, if it is still the caller's.
-- KEYS[1] leader
-- ARGV[1] token
-- returns 1, or 0 if the term is no longer the caller's
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1])
end
return 0

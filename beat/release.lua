-- Ends a term, if it is still the caller's, and wakes the followers.
-- KEYS[1] leader, which is also the name of the channel that followers listen to
-- ARGV[1] token
-- returns 1, or 0 if the term is no longer the caller's
if redis.call("GET", KEYS[1]) == ARGV[1] then
    redis.call("PUBLISH", KEYS[1], ARGV[1])
    return redis.call("DEL", KEYS[1])
end
return 0

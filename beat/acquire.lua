-- Takes the lead if nobody has it, and opens a new term. Goes on with the caller's own term if Redis still holds it, as
-- it does after a reply was lost: nobody else has led since, so it is the same term, with the same epoch.
-- KEYS[1] leader: holds the leader's token, expires with the term
-- KEYS[2] epoch: counts terms, permanent
-- ARGV[1] token, ARGV[2] ttl in milliseconds
-- returns {epoch of the caller's term, or 0 if another leads; milliseconds until the lock lapses}
if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
    return {redis.call("INCR", KEYS[2]), tonumber(ARGV[2])}
end
if redis.call("GET", KEYS[1]) == ARGV[1] then
    redis.call("PEXPIRE", KEYS[1], ARGV[2])
    -- The counter can be gone where somebody deleted keys by hand; a term without a number would match no fire.
    return {tonumber(redis.call("GET", KEYS[2]) or redis.call("INCR", KEYS[2])), tonumber(ARGV[2])}
end
return {0, redis.call("PTTL", KEYS[1])}

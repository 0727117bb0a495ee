-- Takes the lead if nobody has it, and opens a new term; goes on with the caller's own term if Redis still holds it,
-- as it does after a reply was lost on the wire.
-- KEYS[1] leader: holds the leader's token, expires with the term
-- KEYS[2] epoch: counts terms, permanent
-- ARGV[1] token, ARGV[2] ttl in milliseconds
-- returns the number of the caller's term, or 0 if another leads
if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
    return redis.call("INCR", KEYS[2])
end
if redis.call("GET", KEYS[1]) == ARGV[1] then
    redis.call("PEXPIRE", KEYS[1], ARGV[2])
    return tonumber(redis.call("GET", KEYS[2]))
end
return 0

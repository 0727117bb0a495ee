-- Takes the lead if nobody has it, and opens a new term.
-- KEYS[1] leader: holds the leader's token, expires with the term
-- KEYS[2] epoch: counts terms, permanent
-- ARGV[1] token, ARGV[2] ttl in milliseconds
-- returns the number of the new term, or 0 if somebody leads
if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
    return redis.call("INCR", KEYS[2])
end
return 0

-- Sets the allowance of an elastic entry as a lease, and writes the decision down: if the caller leads, and nobody has
-- the balancer off.
-- KEYS[1] leader, KEYS[2] epoch, KEYS[3] the balancer is off, KEYS[4] the lease, KEYS[5] decisions of the entry
-- ARGV[1] token, ARGV[2] epoch, ARGV[3] the lease, ARGV[4] milliseconds for which it holds, ARGV[5] length that the
-- decisions are capped to
-- then the fields of a decision, a name and a value each; none where there is nothing to write down
-- returns "done"; or what stands in the way, having changed nothing: "deposed" or "off"
if redis.call("GET", KEYS[1]) ~= ARGV[1] or redis.call("GET", KEYS[2]) ~= ARGV[2] then
    return "deposed"
end
if redis.call("EXISTS", KEYS[3]) == 1 then
    return "off"
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("XLEN", KEYS[5])
redis.call("SET", KEYS[4], ARGV[3], "PX", ARGV[4])
if #ARGV > 5 then
    redis.call("XADD", KEYS[5], "MAXLEN", "~", ARGV[5], "*", unpack(ARGV, 6))
end
return "done"

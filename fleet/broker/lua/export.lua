-- Moves delayed messages of one queue to stock Dramatiq's delay queue: each only if it is still delayed until the same
-- time and its stored body is still the one that the new body was made from.
-- KEYS[1] delayed, KEYS[2] bodies, KEYS[3] .DQ list, KEYS[4] .DQ bodies
-- ARGV four a message: id, milliseconds it is due at, its stored body, its body for stock
-- returns how many now stand in the delay queue; a repeat of a call moves nothing again and answers the same, unless a
-- stock worker ended some meanwhile
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("LLEN", KEYS[3])
local there = 0
for i = 1, #ARGV, 4 do
    local id, due, stored, fresh = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local score = redis.call("ZSCORE", KEYS[1], id)
    if score and tonumber(score) == tonumber(due) and redis.call("HGET", KEYS[2], id) == stored then
        if redis.call("HSETNX", KEYS[4], id, fresh) == 1 then
            redis.call("RPUSH", KEYS[3], id)
            redis.call("ZREM", KEYS[1], id)
            redis.call("HDEL", KEYS[2], id)
            there = there + 1
        end
    elseif redis.call("HGET", KEYS[4], id) == fresh then
        there = there + 1
    end
end
return there

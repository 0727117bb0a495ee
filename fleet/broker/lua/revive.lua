-- Takes dead letters away, to their queue again or for good; an id that is no dead letter any more changes nothing.
-- KEYS[1] queue, KEYS[2] bodies, KEYS[3] dead, KEYS[4] dead bodies, KEYS[5] dead details
-- ARGV[1] wake channel, ARGV[2] name of the queue, then two a message: id, encoded message to queue ("" to discard)
-- returns how many were dead letters
-- Refused below, after half of the work, it could not be taken back.
if not redis.acl_check_cmd("PUBLISH", ARGV[1], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[1])
end
-- A key of another type must be found before the first write: an error half-way would lose the letter.
redis.call("LLEN", KEYS[1])
redis.call("HLEN", KEYS[2])
redis.call("ZCARD", KEYS[3])
redis.call("HLEN", KEYS[4])
redis.call("HLEN", KEYS[5])
local moved = 0
for i = 3, #ARGV, 2 do
    if redis.call("ZREM", KEYS[3], ARGV[i]) == 1 then
        redis.call("HDEL", KEYS[4], ARGV[i])
        redis.call("HDEL", KEYS[5], ARGV[i])
        if ARGV[i + 1] ~= "" then
            redis.call("HSET", KEYS[2], ARGV[i], ARGV[i + 1])
            redis.call("RPUSH", KEYS[1], ARGV[i])
        end
        moved = moved + 1
    end
end
redis.call("PUBLISH", ARGV[1], ARGV[2])
return moved

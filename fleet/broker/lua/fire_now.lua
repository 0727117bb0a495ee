-- Sends a message of an entry because a person asked for it. Neither reads nor moves the entry's mark.
-- KEYS[1] runs by hand, KEYS[2] ledger of the entry, KEYS[3] queue, KEYS[4] bodies of the queue, KEYS[5] awaited queues
-- ARGV[1] entry, ARGV[2] message id, ARGV[3] encoded message, ARGV[4] the night's time (milliseconds), ARGV[5] by whom
-- ARGV[6] why, ARGV[7] length the ledger is capped to, ARGV[8] wake channel, ARGV[9] name of the queue
-- returns 1, or 0 if the message is there already
-- Refused below, after half of the work, it could not be taken back.
if not redis.acl_check_cmd("PUBLISH", ARGV[8], "") then
    return redis.error_reply("NOPERM this user may not PUBLISH on " .. ARGV[8])
end
-- A key of another type must be found before the first write: an error half-way would leave half written.
redis.call("HLEN", KEYS[1])
redis.call("XLEN", KEYS[2])
redis.call("LLEN", KEYS[3])
redis.call("SCARD", KEYS[5])
if redis.call("HSETNX", KEYS[4], ARGV[2], ARGV[3]) == 0 then
    return 0
end
redis.call("RPUSH", KEYS[3], ARGV[2])
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
redis.call("XADD", KEYS[2], "MAXLEN", "~", ARGV[7], "*", "verdict", "manual", "from", ARGV[4], "to", ARGV[4],
    "count", 0, "by", ARGV[5], "because", ARGV[6])
if redis.call("SREM", KEYS[5], ARGV[9]) == 1 then
    redis.call("PUBLISH", ARGV[8], ARGV[9])
end
return 1

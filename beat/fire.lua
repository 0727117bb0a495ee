-- Gives a verdict on an entry's slots up to a mark, and sends the message of the one that fires: all of it, or nothing.
-- KEYS[1] leader, KEYS[2] marks, KEYS[3] ledger, KEYS[4] queue, KEYS[5] bodies of the queue
-- ARGV[1] token, ARGV[2] epoch, ARGV[3] entry
-- ARGV[4] the mark expected (milliseconds, "" for none), ARGV[5] the new mark
-- ARGV[6] message id ("" if no slot fires), ARGV[7] the encoded message
-- ARGV[8] length the ledger is capped to, ARGV[9] wake channel, ARGV[10] name of the queue
-- then four a ledger line: verdict, first slot, last slot, count
-- returns "done", "deposed" (the caller does not lead) or "moved" (the mark is not the expected one)
if redis.call("GET", KEYS[1]) ~= ARGV[1] then
    return "deposed"
end
if (redis.call("HGET", KEYS[2], ARGV[3]) or "") ~= ARGV[4] then
    return "moved"
end
if ARGV[6] ~= "" then
    redis.call("HSET", KEYS[5], ARGV[6], ARGV[7])
    redis.call("RPUSH", KEYS[4], ARGV[6])
    redis.call("PUBLISH", ARGV[9], ARGV[10])
end
redis.call("HSET", KEYS[2], ARGV[3], ARGV[5])
for i = 11, #ARGV, 4 do
    redis.call("XADD", KEYS[3], "MAXLEN", "~", ARGV[8], "*", "entry", ARGV[3], "verdict", ARGV[i],
        "from", ARGV[i + 1], "to", ARGV[i + 2], "count", ARGV[i + 3], "token", ARGV[1], "epoch", ARGV[2])
end
return "done"

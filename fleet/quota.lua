-- Places of one quota, held as leases by the server's clock: whose lapsed is gone at the next call. So is one that ends
-- later than any taken now could: the clock was set back, who lives renews, and a killed holder's would stay as long.
-- KEYS[1] places of people, KEYS[2] places of batch (holding id -> milliseconds its lease ends at)
-- ARGV[1] what to do, ARGV[2] length of a lease in milliseconds, ARGV[3] places, ARGV[4] reserve, then
--   take: "people" or "batch", id     (people always get one; batch while places - reserve are not all taken)
--   keep: (holder, id) each           (a place that lapsed is held again: its call is still under way, and counts)
--   free: id                          count: -
-- returns {1 granted or 0, places that people hold, places that batch holds}; repeating a call changes nothing.
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local verb, lease = ARGV[1], tonumber(ARGV[2])
local of = {people = KEYS[1], batch = KEYS[2]}
for _, key in pairs(of) do
    redis.call("ZREMRANGEBYSCORE", key, "-inf", string.format("%.0f", now))
    redis.call("ZREMRANGEBYSCORE", key, string.format("(%.0f", now + 2 * lease), "+inf")  -- not for a clock that is slewed
end

local function hold(holder, id)
    redis.call("ZADD", of[holder], string.format("%.0f", now + lease), id)
    redis.call("PEXPIRE", of[holder], lease)
end

local granted = 1
if verb == "take" then
    local holder, id = ARGV[5], ARGV[6]
    local taken = redis.call("ZCARD", KEYS[1]) + redis.call("ZCARD", KEYS[2])
    if holder == "batch" and not redis.call("ZSCORE", KEYS[2], id) and taken >= ARGV[3] - ARGV[4] then
        granted = 0
    else
        hold(holder, id)
    end
elseif verb == "keep" then
    for i = 5, #ARGV, 2 do
        hold(ARGV[i], ARGV[i + 1])
    end
elseif verb == "free" then
    redis.call("ZREM", KEYS[1], ARGV[5])
    redis.call("ZREM", KEYS[2], ARGV[5])
end
return {granted, redis.call("ZCARD", KEYS[1]), redis.call("ZCARD", KEYS[2])}

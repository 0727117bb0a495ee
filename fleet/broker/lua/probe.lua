-- Reads what stands in queues, changes nothing, and copies no more than the ends of a few bodies, however long the queues.
-- KEYS[1] history of readings, KEYS[2] heartbeats (stock's), KEYS[3] workers, KEYS[4] what workers prefetched
-- then seven a queue: queue, suspects, bodies, .DQ list, .DQ bodies, delayed, dead
-- ARGV[1] milliseconds back from which on dead letters are new, ARGV[2] milliseconds back of the reading to compare with,
-- ARGV[3] milliseconds since its last heartbeat for which a worker counts as alive
-- returns {milliseconds of the server, the reading to compare with ({id, fields}, or nothing), {ids of the workers that
-- live}, {their queues (JSON)}, {what they prefetched (JSON)}, then one a queue: {the first error that a key of another type gave ("" for none), {waiting,
-- suspects, bodies, .DQ bodies, delayed, dead, new dead}, milliseconds that its first delayed message is due at (or nothing),
-- {ends of the bodies of its first waiting messages}, {of its first suspect}, {of the first in .DQ}}}
-- A key of another type hides its own figure and no other.
local HEAD, WIDTH, FIRST, LONGEST = 4, 7, 3, 512
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function ago(milliseconds)
    return string.format("%.0f", now - tonumber(milliseconds))
end

local failure
local function ask(...)
    local answer = redis.pcall(...)
    if type(answer) == "table" and answer.err then
        failure = failure or (select(2, ...) .. ": " .. answer.err)
        return false
    end
    return answer
end

-- The fields that tell when a message was due are written last.
local function ends(list, bodies, most)
    local ids, found = ask("LRANGE", list, 0, most - 1) or {}, {}
    if #ids == 0 then
        return found
    end
    for _, body in ipairs(ask("HMGET", bodies, unpack(ids)) or {}) do
        if body then
            found[#found + 1] = #body > LONGEST and string.sub(body, -LONGEST) or body
        end
    end
    return found
end

local alive = ask("ZRANGEBYSCORE", KEYS[2], ago(ARGV[3]), "+inf", "LIMIT", 0, 5000) or {}
local serving = #alive > 0 and ask("HMGET", KEYS[3], unpack(alive)) or {}
local prefetched = #alive > 0 and ask("HMGET", KEYS[4], unpack(alive)) or {}
local before = ask("XREVRANGE", KEYS[1], ago(ARGV[2]), "-", "COUNT", 1) or {}
local answer = {now, before, alive, serving, prefetched}
for place = HEAD + 1, #KEYS, WIDTH do
    failure = nil
    local queue, suspects, bodies = KEYS[place], KEYS[place + 1], KEYS[place + 2]
    local stock, stock_bodies, delayed, dead = KEYS[place + 3], KEYS[place + 4], KEYS[place + 5], KEYS[place + 6]
    local waiting, marked = ask("LLEN", queue), ask("LLEN", suspects)
    local held, of_stock = ask("HLEN", bodies), ask("HLEN", stock_bodies)
    local to_come, died = ask("ZCARD", delayed), ask("ZCARD", dead)
    local counts = {waiting, marked, held, of_stock, to_come, died}
    counts[7] = (died or 0) > 0 and ask("ZCOUNT", dead, ago(ARGV[1]), "+inf") or 0
    local first = (to_come or 0) > 0 and ask("ZRANGE", delayed, 0, 0, "WITHSCORES")[2] or false
    local of_first = (waiting or 0) > 0 and ends(queue, bodies, FIRST) or {}
    local of_suspect = (marked or 0) > 0 and ends(suspects, bodies, 1) or {}
    local of_delayed = (ask("LLEN", stock) or 0) > 0 and ends(stock, stock_bodies, 1) or {}
    answer[#answer + 1] = {failure or "", counts, first, of_first, of_suspect, of_delayed}
end
return answer

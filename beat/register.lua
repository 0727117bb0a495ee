-- Makes a process's schedule the stored one. An entry that changed gets a revision more, which begins now; one that is
-- no longer there gets a last one, "-". An entry that was never there opens its ledger, and owes nothing from before.
-- KEYS[1] schedule, KEYS[2] revisions, KEYS[3] marks, then the ledger of each entry
-- ARGV[1] digest of the schedule, ARGV[2] token of the process
-- ARGV[3] a real instant and ARGV[4] the night's at it (milliseconds), ARGV[5] night milliseconds a real one
-- ARGV[6] how many revisions of an entry are kept, ARGV[7] length a ledger is capped to
-- then two an entry: its name, what its revision says (one line)
-- returns the generation of the stored schedule, whether this call changed it, and the entries that it ended
local clock = redis.call("TIME")
local real = clock[1] * 1000 + clock[2] / 1000
local now = math.floor(tonumber(ARGV[4]) + (real - tonumber(ARGV[3])) * tonumber(ARGV[5]))
-- A key of another type must be found before the first write: an error half-way would leave half written.
local digest = redis.call("HGET", KEYS[1], "digest")
redis.call("HLEN", KEYS[2])
redis.call("HLEN", KEYS[3])
for i = 4, #KEYS do
    redis.call("XLEN", KEYS[i])
end
local changed = digest ~= ARGV[1]

local function lines_of(history)
    local lines = {}
    for line in string.gmatch(history or "", "[^\n]+") do
        lines[#lines + 1] = line
    end
    return lines
end

-- What was due up to now, and what has its verdict already, is the revision's before. Where the clock was set back, a
-- revision begins when the one before it did: otherwise a slot would be two revisions'.
-- Returns whether there is a new one.
local function revise(name, says, mark)
    local lines = lines_of(redis.call("HGET", KEYS[2], name))
    local number, since, before = string.match(lines[#lines] or "", "^(%d+) (%-?%d+) (.*)$")
    if before == says then
        return false
    end
    local began = math.max(now, mark, tonumber(since) or mark)
    lines[#lines + 1] = string.format("%.0f %.0f %s", (tonumber(number) or 0) + 1, began, says)
    while #lines > 1 do
        local next_began = tonumber(string.match(lines[2], "^%d+ (%-?%d+)"))
        if #lines <= tonumber(ARGV[6]) and (not next_began or next_began > mark) then
            break
        end
        table.remove(lines, 1)
    end
    redis.call("HSET", KEYS[2], name, table.concat(lines, "\n"))
    changed = true
    return true
end

local declared, ended = {}, {}
for i = 8, #ARGV, 2 do
    local name = ARGV[i]
    declared[name] = true
    local mark = tonumber(redis.call("HGET", KEYS[3], name) or "")
    if not mark then
        mark = now
        redis.call("HSET", KEYS[3], name, string.format("%.0f", mark))
        redis.call("XADD", KEYS[4 + (i - 8) / 2], "MAXLEN", "~", ARGV[7], "*", "verdict", "new", "from", mark, "to",
            mark, "count", 0, "token", ARGV[2])
        changed = true
    end
    revise(name, ARGV[i + 1], mark)
end
for _, name in ipairs(redis.call("HKEYS", KEYS[2])) do
    if not declared[name] and revise(name, "-", tonumber(redis.call("HGET", KEYS[3], name) or "") or now) then
        ended[#ended + 1] = name
    end
end
if changed then
    redis.call("HSET", KEYS[1], "digest", ARGV[1])
    redis.call("HINCRBY", KEYS[1], "generation", 1)
end
redis.call("HINCRBY", KEYS[1], "looks", 1)
return {redis.call("HGET", KEYS[1], "generation"), changed and 1 or 0, ended}

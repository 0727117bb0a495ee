#!lua flags=no-writes,allow-stale
-- Says which of some commands the caller may not give; gives none of them.
-- ARGV: each a command with its arguments (JSON)
-- returns the places of those that are refused, counted from 1
local refused = {}
for i = 1, #ARGV do
    if not redis.acl_check_cmd(unpack(cjson.decode(ARGV[i]))) then
        refused[#refused + 1] = i
    end
end
return refused

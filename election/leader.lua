-- Reads the present leader and its value. A value counts only while the lock is held by the leader that stored it.
--
-- KEYS[1] the hash of the fair lock
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: 'L PTTL OWNER TOKEN NUMBER VALUE', or 'N' if there is no leader with a value
--
-- Generated from election/lua/leader.lua: edit that, and run go generate ./...

local stored = redis.call('HGET', KEYS[2], 'v')
local owner, token = string.match(stored or '', '^(%S+) (%d+) %d+ ')
if not owner then
  return 'N'
end
local held = redis.call('HMGET', KEYS[1], owner, 't')
if not held[1] or held[2] ~= token then
  return 'N'
end
return 'L ' .. redis.call('PTTL', KEYS[1]) .. ' ' .. stored

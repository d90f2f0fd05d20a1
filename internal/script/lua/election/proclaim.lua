-- Stores the value of a leader and notifies the observers. After each third of the lease, the session sends
-- the value again, in case Redis has lost it.
--
-- Sending the request again is harmless, because the script does not replace a newer value of the same
-- leader.
--
-- KEYS[1]   see internal/script/lua/lock.lua. The observers' channel has the same name
-- ARGV[1]   owner field of the leader
-- ARGV[2]   its token
-- ARGV[3]   sequence number of the value within this leadership. The value with the highest number counts
-- ARGV[4]   the value
-- ARGV[5]   KEEP, see internal/script/lua/lock.lua
--
-- Replies
--   K   the value is stored, or a newer value of the same leader is
--   L   the lock is not held under this token

local now = clock()
local s = read('', now, ARGV[5])
if s.owner ~= ARGV[1] or s.token ~= ARGV[2] then
  return onMaster('L')
end
local owner, token, number = string.match(redis.call('HGET', KEYS[1], 'leader') or '', '^(%S+) (%d+) (%d+) ')
if owner == ARGV[1] and token == ARGV[2] and tonumber(number) >= tonumber(ARGV[3]) then
  return onMaster('K')
end
set(s, s.ends, 'leader', table.concat({ ARGV[1], ARGV[2], ARGV[3], ARGV[4] }, ' '))
redis.call('PUBLISH', KEYS[1], ARGV[2] .. ' ' .. ARGV[3])
return 'K'

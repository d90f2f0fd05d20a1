-- Stores the value of a leader and notifies the observers. After each third of the lease, the leader's
-- session sends the value again, in case Redis has lost the value.
--
-- Sending the request again is harmless, because the script does not replace a newer value of the same
-- leader.
--
-- KEYS[1]   see internal/script/lua/lock.lua. This key is also the name of the channel for the observers
-- ARGV[1]   owner field of the leader
-- ARGV[2]   token of the leader
-- ARGV[3]   sequence number of the value within this leadership. The value with the highest number counts
-- ARGV[4]   the value
-- ARGV[5]   KEEP, see internal/script/lua/lock.lua
--
-- Replies
--   K   this value, or a newer value of the same leader, is stored
--   L   not stored, because the leader does not hold the lock under this token any more

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

-- Deletes the value of a leader that has resigned and notifies the observers, unless the next leader has a
-- value already.
--
-- Sending the request again is harmless. The value of another leader stays.
--
-- KEYS[1]   see internal/script/lua/lock.lua. It is the name of the channel, too
-- ARGV[1]   owner field of the leader
-- ARGV[2]   its token
--
-- Replies
--   R   deleted
--   F   there was no value of this leader

local owner, token = string.match(redis.call('HGET', KEYS[1], 'leader') or '', '^(%S+) (%d+) %d+ ')
if owner ~= ARGV[1] or token ~= ARGV[2] then
  return onMaster('F')
end
redis.call('HDEL', KEYS[1], 'leader')
redis.call('PUBLISH', KEYS[1], ARGV[2])
return 'R'

-- Deletes the value of a leader that has resigned, and notifies the observers. If the next leader has already
-- stored its value, the script does nothing.
--
-- Sending the request again is harmless, because the script does not delete the value of another leader.
--
-- KEYS[1]   see internal/script/lua/lock.lua. This key is also the name of the channel for the observers
-- ARGV[1]   owner field of the leader
-- ARGV[2]   token of the leader
--
-- Replies
--   R   the value was deleted
--   F   Redis had no value of this leader

local owner, token = string.match(redis.call('HGET', KEYS[1], 'leader') or '', '^(%S+) (%d+) %d+ ')
if owner ~= ARGV[1] or token ~= ARGV[2] then
  return onMaster('F')
end
redis.call('HDEL', KEYS[1], 'leader')
redis.call('PUBLISH', KEYS[1], ARGV[2])
return 'R'

-- Ends an attempt. If the attempt holds the lock, the lock is freed, and the waiters are notified.
--
-- Sending the request again is harmless. A second copy finds no hold of this attempt, so a later holder keeps
-- the lock.
--
-- KEYS      see internal/script/lua/redisson.lua
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant, or '' for any token. If the attempt holds the lock under another token, the
--           script also frees the lock, but the reply is L
-- ARGV[3]   ms for which the metadata of a free lock is kept
-- ARGV[4]   Redis time in µs until which a copy of the attempt's request may arrive. The copy must find that
--           the attempt has ended. 0 means that no copy is in flight
-- ARGV[5]   CHANNEL
-- ARGV[6]   HOW
--
-- Replies
--   R   released under this token, by this request or an earlier copy of it
--   L   lost, because the attempt does not hold the lock under this token, and has not released it
-- If this request freed the lock, the reply also has the number of clients of this server that were notified,
-- after a space

local owner, token, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held, reply = redis.call('HMGET', KEYS[1], owner, 't'), nil
if held[1] then
  readNumber(KEYS[1], 't', held[2] or '')
  redis.call('DEL', KEYS[1])
  -- HSET is called by pcall, because the lock is released even if the server refuses this HSET. If the
  -- metadata exists, it usually lives for at least `keep` ms more. If it was evicted, all three fields are
  -- new, and the new key needs an expiry. All earlier tokens then count as lost, as in acquire.lua.
  if redis.pcall('HSET', KEYS[2], 't', held[2], 'r', held[2], 'a', owner) == 3 then
    redis.call('PEXPIRE', KEYS[2], toString(keep))
    redis.call('HSET', KEYS[2], 'l', toString(held[2] - 1))
  end
  local count = publish(ARGV[6], ARGV[5])
  reply = ((token == '' or token == held[2]) and 'R ' or 'L ') .. count
else
  onMaster()
  reply = token ~= '' and released(token) and 'R' or 'L'
  if token ~= '' and reply == 'L' then
    publishIfGone(ARGV[6], ARGV[5])
  end
end
writeTombstone(owner, ARGV[4], keep)
return reply

-- Renews the lease of a party. If the lease has ended, the script does not renew it, because waiters may
-- already have noticed the end.
--
-- Sending the request again is harmless. A copy that arrives late renews the lease only if the party has it.
--
-- ARGV[1] id of the request by which the party joined
-- ARGV[2] name of the party
-- ARGV[3] lease in ms
--
-- Replies
--   K   renewed
--   L   not renewed, because the party has no lease, or its lease has ended

local now = clock()
local till, id, replaces = leaseOf(ARGV[2])
if id ~= ARGV[1] or till <= now then
  return onMaster('L')
end
-- A full server may refuse the first write of a script, but no later write, and no HDEL. So the first write
-- is this HDEL, which changes nothing.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], toString(now + ARGV[3] * 1000) .. ' ' .. id .. replaces)
keepAlive(redis.call('HGET', KEYS[1], 'k'), ARGV[3])
return 'K'

-- Renews the lease of a party. If the lease has ended, the script does not renew it, because waiters may
-- already have noticed the end.
--
-- ARGV[1] id of the request by which the party joined
-- ARGV[2] name of the party
-- ARGV[3] lease in ms
--
-- Replies
--   K   renewed
--   L   not renewed, because the party has no lease, or its lease has ended

local now = clock()
local till, id = leaseOf(ARGV[2])
if id ~= ARGV[1] or till <= now then
  return onMaster('L')
end
redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], toString(now + ARGV[3] * 1000) .. ' ' .. id)
keepAlive(redis.call('HGET', KEYS[1], 'k'))
return 'K'

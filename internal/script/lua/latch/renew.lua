-- Renews the lease of a party. A lease that has ended stays so: waiters may have been told.
--
-- ARGV[1] id of the party
-- ARGV[2] name of the party
-- ARGV[3] lease in milliseconds
--
-- Reply: 'K' kept, 'L' it has none

local now = clock()
local till, id = leased(ARGV[2])
if id ~= ARGV[1] or till <= now then
  return onMaster('L')
end
redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], stamp(now + ARGV[3] * 1000) .. ' ' .. id)
live(redis.call('HGET', KEYS[1], 'k'))
return 'K'

-- Makes the lease of a holder at least so long. It sets and never adds, so a copy that comes twice or late
-- changes nothing.
--
-- ARGV[1] owner field
-- ARGV[2] token of the grant
-- ARGV[3] lease in milliseconds
-- ARGV[4] milliseconds by which the metadata outlives the lease
--
-- Reply: 'K' kept, 'L' lost: not held under this token

local now = clock()
local _, token, _, _, left = holding(ARGV[1], now)
if not left or token ~= ARGV[2] then
  return onMaster('L', KEYS[2])
end
-- A full server takes this, and all that is behind it.
redis.call('PEXPIRE', KEYS[6], math.max(2 * ARGV[3], redis.call('PTTL', KEYS[6])))
prolong(ARGV[1], math.max(tonumber(ARGV[3]), left), now, tonumber(ARGV[4]))
return 'K'

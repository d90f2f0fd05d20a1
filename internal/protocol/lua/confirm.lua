-- Writes to a held lock, so that WAIT behind it tells how many replicas know of the
-- grant: WAIT speaks of what its own connection wrote, and so of all that was written before.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] token of the grant
-- ARGV[2] lease in milliseconds: it is made at least that long
-- ARGV[3] milliseconds by which the metadata outlives the lease
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token

if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then
  return 'L'
end
local lease, keep = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])), tonumber(ARGV[3])
redis.call('PEXPIRE', KEYS[1], lease) -- in any case: what writes nothing confirms nothing
outlive(lease + keep, keep)
return 'K'

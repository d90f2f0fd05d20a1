-- Sets what a held lock looks like now: its hold count, and a lease that is no shorter than asked. Serves
-- re-entry, the unlock of a nested hold, renewal and Extend.
--
-- ARGV[1] owner field
-- ARGV[2] token of the grant that this is about
-- ARGV[3] number of this change within the grant; an older one is ignored
-- ARGV[4] hold count
-- ARGV[5] lease in milliseconds; 0 leaves it as it is
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] a token that no later grant may have, nor one below; 0 is none
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token.

local low = ARGV[7] ~= '0' and whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) < tonumber(ARGV[7])
if not update() then
  return onMaster('L')
end
if low then
  redis.call('HSET', KEYS[2], 't', ARGV[7])
  outlive(redis.call('PTTL', KEYS[1]) + tonumber(ARGV[6]), tonumber(ARGV[6]))
end
return 'K'

-- Sets what a held lock looks like now: its hold count, and a lease that is no
-- shorter than asked. It sets and never adds, so a copy that comes twice or late
-- changes nothing.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] token of the grant that this is about
-- ARGV[3] number of this change within the grant; an older one is ignored
-- ARGV[4] hold count
-- ARGV[5] lease in milliseconds; 0 leaves it as it is
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] of locks with a queue
-- ARGV[8] channel
-- ARGV[9] how messages are published on it: see sharding in shared.lua
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token.

if update(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]) then
  return 'K'
end
alarm(ARGV[9], ARGV[8])
return 'L'

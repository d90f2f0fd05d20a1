-- Does what lock/keep.lua does, but for its last argument, and wakes those that wait for a lock that is gone.
--
-- KEYS    internal/script/lua/redisson.lua
-- ARGV[1] to [6] internal/script/lua/lock/keep.lua
-- ARGV[8] CHANNEL
-- ARGV[9] HOW
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token

if update() then
  return 'K'
end
alarm(ARGV[9], ARGV[8])
return 'L'

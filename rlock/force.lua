-- Frees the lock whoever holds it. The holder learns that it lost the lock.
--
-- KEYS    as in the prelude
-- ARGV[1] channel
-- ARGV[2] milliseconds by which the memory outlives the lease
--
-- Reply: 'R' it was held, 'F' it was free

local owner = holder(true)
if not owner then
  return 'F'
end
redis.call('DEL', KEYS[1])
disown(owner, tonumber(ARGV[2]))
redis.call('PUBLISH', ARGV[1], '0')
return 'R'

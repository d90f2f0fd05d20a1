-- Frees the lock from any holder, or only from the one whose token was seen. The holder learns that it lost
-- the lock.
--
-- KEYS    internal/script/lua/redisson.lua
-- ARGV[1] to [3] internal/script/lua/lock/force.lua
-- ARGV[4] CHANNEL
-- ARGV[5] HOW
--
-- Reply: how many holders there were

local owner, token = holder(true)
if not owner or ARGV[3] ~= '' and ARGV[3] ~= token then
  return '0'
end
redis.call('DEL', KEYS[1])
disown(owner, tonumber(ARGV[2]))
publish(ARGV[5], ARGV[4], '0')
if sharding(ARGV[5], ARGV[4]) then -- this is rare, and the caller may be told another mode than waiters
  redis.call('PUBLISH', ARGV[4], '0')
end
return '1'

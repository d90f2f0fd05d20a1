-- Releases a reentrant lock in a hash, with the least number of commands.
--
-- KEYS[1] the lock: owner -> hold count
-- ARGV[1] owner
-- ARGV[2] channel to which waiters would be subscribed
--
-- Reply: the number of holds that are left; nil if the owner had none

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '0')
end
return left

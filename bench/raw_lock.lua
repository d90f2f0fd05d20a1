-- Takes a reentrant lock in a hash, with the least number of commands.
--
-- KEYS[1] the lock: owner -> hold count
-- ARGV[1] owner
-- ARGV[2] lease in milliseconds
--
-- Reply: -3 if the owner has the lock now. Otherwise, the milliseconds that are left of the holder's lease,
-- as PTTL returns them. The reply is not nil, because go-redis makes an error of nil, which costs time.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return -3
end
return redis.call('PTTL', KEYS[1])

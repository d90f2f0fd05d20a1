-- The least that a reentrant lock in a hash must do to be taken.
--
-- KEYS[1] the lock: owner -> hold count
-- ARGV[1] owner
-- ARGV[2] lease in milliseconds
--
-- Reply: -3 if taken, else how many milliseconds the holder has left, as PTTL says.
-- Not nil, which go-redis makes an error of, at a cost.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return -3
end
return redis.call('PTTL', KEYS[1])

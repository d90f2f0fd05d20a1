-- KEYS[1]: holders by the end of their lease. ARGV: the holder, how many there may be, the lease in ms.
-- Returns 1 if it holds a permit now. Separate commands would let in more: two clients may both count before
-- both add.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1

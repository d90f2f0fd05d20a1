-- Takes a permit of a semaphore. A script is necessary: with separate commands, two clients could both count
-- the holders before either adds itself.
--
-- KEYS[1] holders by the ends of their leases
-- ARGV[1] holder
-- ARGV[2] number of permits
-- ARGV[3] lease in milliseconds
--
-- Reply: 1 if the holder has a permit now, otherwise 0
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1

-- Frees the lock whoever holds it. The holder learns that it lost the lock.
--
-- KEYS    as in the prelude
-- ARGV[1] channel
--
-- Reply: 'R' it was held, 'F' it was free

if redis.call('HLEN', KEYS[1]) == 0 then
  return 'F'
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[1], '0')
return 'R'

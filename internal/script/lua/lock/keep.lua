-- Sets what a held lock looks like now: its hold count, and a lease that is no
-- shorter than asked. Serves re-entry, the unlock of a nested hold, renewal and
-- Extend. It sets and never adds, so a copy that comes twice or late changes nothing.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] token of the grant that this is about
-- ARGV[3] number of this change within the grant; an older one is ignored
-- ARGV[4] hold count
-- ARGV[5] lease in milliseconds; 0 leaves it as it is
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] channel on which waiters are woken if the lock is free; ''
--         where none is: they look by themselves
-- ARGV[8] message
-- ARGV[9] how it is published: see sharding in shared.lua; '' by PUBLISH
-- ARGV[10] a token that no later grant may have, nor one below; or none
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token.

local held = redis.call('HMGET', KEYS[1], 't', 's', ARGV[1])
if held[1] == ARGV[2] and held[3] then
  local change, lease = sound(held[2] or ''), tonumber(ARGV[5])
  local low = ARGV[10] and whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) < tonumber(ARGV[10])
  if lease > 0 then
    renew(lease, tonumber(ARGV[6]))
  end
  if low then
    redis.call('HSET', KEYS[2], 't', ARGV[10])
    outlive(redis.call('PTTL', KEYS[1]) + tonumber(ARGV[6]), tonumber(ARGV[6]))
  end
  if not change or tonumber(ARGV[3]) > change then
    -- The lease comes first: a server short of memory refuses this, and takes it the next time.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4], 's', ARGV[3])
  end
  return 'K'
end

if ARGV[7] ~= '' and redis.call('HLEN', KEYS[1]) == 0 then
  publish(ARGV[9], ARGV[7], ARGV[8]) -- its data were deleted, and nothing else would tell
end
return 'L'

-- Stores the value of a leader and tells the observers. Renewals send it again, in case it was lost.
--
-- KEYS    those of the fair lock: internal/script/lua/shared.lua. KEYS[1] is the channel, too
-- ARGV[1] owner field of the leader
-- ARGV[2] its token
-- ARGV[3] number of the value: the highest of this leader counts
-- ARGV[4] the value
-- ARGV[5] milliseconds by which the metadata outlives the lease
--
-- Reply: 'K' the value is stored, or a newer one of the same leader
--        'L' the lock is not held under this token

local held = redis.call('HMGET', KEYS[1], ARGV[1], 't')
if not held[1] or held[2] ~= ARGV[2] then
  return onMaster('L')
end
local owner, token, number = string.match(redis.call('HGET', KEYS[2], 'v') or '', '^(%S+) (%d+) (%d+) ')
if owner == ARGV[1] and token == ARGV[2] and tonumber(number) >= tonumber(ARGV[3]) then
  return onMaster('K')
end
redis.call('HSET', KEYS[2], 'v', table.concat({ ARGV[1], ARGV[2], ARGV[3], ARGV[4] }, ' '))
outlive(redis.call('PTTL', KEYS[1]) + ARGV[5], tonumber(ARGV[5])) -- the metadata may have been evicted
redis.call('PUBLISH', KEYS[1], ARGV[2] .. ' ' .. ARGV[3])
return 'K'

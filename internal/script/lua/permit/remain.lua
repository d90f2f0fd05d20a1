-- Ends a hold whose permits are to stay taken for a time, as lock/remain.lua does.
--
-- ARGV    internal/script/lua/lock/remain.lua
--
-- Reply: 'R' ended, now or by an earlier copy of this request, or 'L' lost: not held under this token

local now = clock()
local owner, rest, keep = ARGV[1], ARGV[1] .. '~', tonumber(ARGV[4])
local n, token, about, _, valid = holding(owner, now)
if not valid or token ~= ARGV[2] then
  vacate(owner, ARGV[3], now) -- a server whose data are old has it wait
  tombstone(owner, ARGV[5], keep)
  return redis.call('HGET', KEYS[6], rest) and 'R' or 'L'
end
local left = math.max(1, tonumber(ARGV[7]))
-- A full server takes this, and all that is behind it.
redis.call('PEXPIRE', KEYS[6], math.max(2 * left, redis.call('PTTL', KEYS[6])))
prolong(rest, left, now, keep)
redis.call('HSET', KEYS[6], rest, n .. ' ' .. token .. ' ' .. about)
redis.call('HDEL', KEYS[6], owner)
redis.call('ZREM', KEYS[1], owner)
handOnPermits(ARGV[3], now, 0)
tombstone(owner, ARGV[5], keep)
return 'R'

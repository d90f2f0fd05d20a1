-- Ends a hold whose lock is to stay taken until a time. No request of its attempt can change it from then on:
-- it has another owner field, which no session knows. The next in the queue is told when to look.
--
-- KEYS, ARGV[1] to [6] internal/script/lua/lock/release.lua
-- ARGV[7] Redis time in microseconds until which the lock stays taken
--
-- Reply: 'R' ended, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN LEASE' behind it, as of lock/release.lua

local owner, keep = ARGV[1], tonumber(ARGV[4])
local held = redis.call('HMGET', KEYS[1], owner, 't')
if not held[1] or held[2] ~= ARGV[2] then
  return depart() -- a server whose data are old has it wait
end
local now = clock()
local left = math.max(1, math.ceil((ARGV[7] - now) / 1000))
redis.call('PEXPIRE', KEYS[1], left) -- first: a server that is short of memory takes what follows then
redis.call('HSET', KEYS[1], owner .. '~', '1')
redis.call('HDEL', KEYS[1], owner, 'k')
redis.call('HSET', KEYS[2], 't', ARGV[6], 'r', ARGV[6], 'a', owner)
outlive(left + keep, keep)
if KEYS[3] then
  local next, _, _, entry = listener('', ARGV[3], now)
  if next then
    tell('', ARGV[3], next, entry, stamp(left))
  end
end
tombstone(owner, ARGV[5], keep)
return 'R'

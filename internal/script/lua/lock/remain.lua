-- Ends a hold whose lock is to stay taken for a time. No request of its attempt can change it from then on:
-- it has another owner field, which no session knows. So a second copy of this request does not change the
-- time. The first two in the queue are told when to look.
--
-- KEYS, ARGV[1] to [6] internal/script/lua/lock/release.lua
-- ARGV[7] ms for which the lock stays taken, counted by the clock of this server
--
-- Reply: 'R' ended, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN LEASE' behind it, as of lock/release.lua

local owner, keep = ARGV[1], tonumber(ARGV[4])
local held = redis.call('HMGET', KEYS[1], owner, 't')
if not held[1] or held[2] ~= ARGV[2] then
  return depart() -- a server whose data are old has it wait
end
local left = math.max(1, tonumber(ARGV[7]))
redis.call('PEXPIRE', KEYS[1], left) -- first: a server that is short of memory takes what follows then
redis.call('HSET', KEYS[1], owner .. '~', '1')
redis.call('HDEL', KEYS[1], owner, 'k')
redis.call('HSET', KEYS[2], 't', ARGV[6], 'r', ARGV[6], 'a', owner)
outlive(left + keep, keep)
if KEYS[3] then
  handOn(owner .. '~', ARGV[3], clock(), left, 0)
end
tombstone(owner, ARGV[5], keep)
return 'R'

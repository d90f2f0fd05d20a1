-- Ends an attempt: it leaves the queue and gives back the permits that it has. Those that wait are served.
--
-- ARGV    internal/script/lua/lock/release.lua
--
-- Reply: 'R' released, or 'L' lost: no lease that lives, or not under this token; and behind it
--        'OWNER TOKEN LEASE' of each attempt of this session that was served

local reply = giveBackAtOnce()
if reply then
  return reply
end
local now = clock()
local owner, keep = ARGV[1], tonumber(ARGV[4])
local queue = redis.call('PTTL', KEYS[3]) ~= -2
local n, token, _, _, left = holding(owner, now)
local held = left and (ARGV[2] == '' or ARGV[2] == token)
if queue then
  leave(owner)
end
if n then
  giveBack(owner, n)
  restore(n, token, ARGV[6])
end
local over, served = expire(now), ''
over[#over + 1] = owner
if queue then
  local limit = redis.call('HGET', KEYS[2], 'n')
  served = limit and serve(session(owner), ARGV[3], now, keep, whole(KEYS[2], 'n', limit)) or ''
end
settle(over)
tombstone(owner, ARGV[5], keep)
return (held and 'R' or 'L') .. served

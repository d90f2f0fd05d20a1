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
-- Before the removal, which may delete the queue: while a slot moves, that key cannot be read then.
local ahead = queue and tonumber(redis.call('ZSCORE', KEYS[3], owner) or nil)
local others = queue and redis.call('ZRANGE', KEYS[3], ahead and 1 or 0, 1)[1]
if queue then
  leave(owner)
end
if n then
  giveBack(owner, n)
  restore(n, token, ARGV[6])
end
local over, served, changed = expire(now), '', false
over[#over + 1] = owner
local limit = others and redis.call('HGET', KEYS[2], 'n')
if limit then
  served, changed = serve(session(owner), ARGV[3], now, keep, whole(KEYS[2], 'n', limit))
end
settle(over)
if others and (changed or ahead) then
  handOnPermits(ARGV[3], now, ahead or nil)
end
tombstone(owner, ARGV[5], keep)
return (held and 'R' or 'L') .. served

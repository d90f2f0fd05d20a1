-- Gives back all permits of a holder but one, as a writer does that goes on as a reader. Those that wait are
-- served.
--
-- ARGV[1] owner field
-- ARGV[2] token of the grant
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds by which the metadata outlives the lease
-- ARGV[5] last token used of its block
--
-- Reply: 'R' reduced, now or by an earlier copy, or 'L' lost: not held under this token; and behind it
--        'OWNER TOKEN LEASE' of each attempt of this session that was served

local now = clock()
local owner, keep = ARGV[1], tonumber(ARGV[4])
local n, token, about, _, left = holding(owner, now)
if not left or token ~= ARGV[2] then
  return onMaster('L', KEYS[2])
end
if n == 1 then
  return onMaster('R', KEYS[2])
end
giveBack(owner, n)
restore(n, token, ARGV[5])
redis.call('HSET', KEYS[6], owner, '1 ' .. token .. ' ' .. about, 'u', stamp(used() + 1))
local over = expire(now)
local limit = whole(KEYS[2], 'n', redis.call('HGET', KEYS[2], 'n'))
local served, changed = serve(session(owner), ARGV[3], now, keep, limit)
settle(over)
if changed then
  handOnPermits(ARGV[3], now)
end
return 'R' .. served

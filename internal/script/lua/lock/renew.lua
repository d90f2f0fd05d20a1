-- Sets the hold count of a held lock, and a lease that is no shorter than the argument. It serves re-entry,
-- the unlock of a nested hold, renewal and Extend.
--
-- Sending the request again is harmless, also late: it sets and never adds, and ignores an old count.
--
-- KEYS[1]   see internal/script/lua/lock.lua
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant
-- ARGV[3]   number of this change of the count within the grant. If it is not above the last one, the count
--           is ignored
-- ARGV[4]   hold count
-- ARGV[5]   lease in ms; 0 leaves the lease as it is
-- ARGV[6]   KEEP
-- ARGV[7]   a token that no later holder may have, nor a lower one; 0: none
--
-- Replies
--   K   the lock is held under this token
--   L   it is not

local now = clock()
local s = read('', now, ARGV[6])
if s.former == ARGV[1] then -- otherwise a clock that is set back would give its lease to it again
  redis.call('HDEL', KEYS[1], 'owner', 'lingers')
end
if s.owner ~= ARGV[1] or s.token ~= ARGV[2] then
  return onMaster('L')
end
redis.call('HDEL', KEYS[1], '') -- a server that is full takes what follows then, and a replica refuses this
local ends = math.max(s.ends, now + ARGV[5] * 1000)
local fields = { 'ends', stamp(ends) }
if tonumber(ARGV[3]) > (sound(s.change or '') or -1) then
  fields = { 'ends', stamp(ends), 'count', ARGV[4], 'change', ARGV[3] }
end
if tonumber(ARGV[7]) > s.granted then
  fields[#fields + 1] = 'floor'
  fields[#fields + 1] = ARGV[7]
end
set(s, ends, unpack(fields))
return 'K'

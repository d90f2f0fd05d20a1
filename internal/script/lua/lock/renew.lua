-- Sets the hold count of a held lock, and extends its lease to at least ARGV[5] ms from now. Re-entry, the
-- unlock of a nested hold, renewal and Extend use this script.
--
-- Sending the request again is harmless, even if a copy arrives late. The script does not add to the hold
-- count but sets the count, and ignores a count that is older than the stored one.
--
-- KEYS      see internal/script/lua/lock.lua. For a lock without permits, only KEYS[1] is needed
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant
-- ARGV[3]   number of this change of the count within the grant. If the number is not above that of the
--           last change, the count is ignored
-- ARGV[4]   hold count
-- ARGV[5]   lease in ms, or 0 to leave the lease as it is
-- ARGV[6]   KEEP, see internal/script/lua/lock.lua
-- ARGV[7]   a token. All later tokens will be higher than this token. 0 means that there is no such bound
-- For a further holder, ARGV[3], ARGV[4] and ARGV[7] are ignored
--
-- Replies
--   K   the lock is held under this token
--   L   the lock is not held under this token

local now = clock()
local s = read('', now, ARGV[6])
local held = grantOf(s, ARGV[1])
if not held then
  removeExpired(s, ARGV[1])
end
if not held or held.token ~= ARGV[2] then
  return onMaster('L')
end
local fields = {}
if held == s and tonumber(ARGV[3]) > (parseNumber(s.change or '') or -1) then
  fields = { 'count', ARGV[4], 'change', ARGV[3] }
end
if held == s and tonumber(ARGV[7]) > s.granted then
  fields[#fields + 1] = 'floor'
  fields[#fields + 1] = ARGV[7]
end
extendLease(s, ARGV[1], held, now + ARGV[5] * 1000, unpack(fields))
return 'K'

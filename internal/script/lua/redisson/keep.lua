-- Sets the hold count of a held lock, and extends its lease to at least ARGV[5] ms from now. Re-entry, the
-- unlock of a nested hold, renewal and Extend use this script.
--
-- Sending the request again is harmless, even if a copy arrives late. The script does not add to the hold
-- count but sets the count, and ignores a count that is older than the stored one.
--
-- KEYS      KEYS[1] and KEYS[2], see internal/script/lua/redisson.lua
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant
-- ARGV[3]   number of this change of the count within the grant. If the number is not above that of the
--           last change, the count is ignored
-- ARGV[4]   hold count
-- ARGV[5]   lease in ms, or 0 to leave the lease as it is
-- ARGV[6]   minimum time in ms for which the metadata outlives the lease
-- ARGV[7]   CHANNEL
-- ARGV[8]   HOW
--
-- Replies
--   K   the lock is held under this token
--   L   the lock is not held under this token. If the lock's hash was deleted, the waiters are notified

if update() then
  return 'K'
end
onMaster()
publishIfGone(ARGV[8], ARGV[7])
return 'L'

-- Sets the hold count of a held lock, and extends its lease to at least ARGV[5] ms. Re-entry, the unlock of a
-- nested hold, renewal and Extend use this script.
--
-- Sending the request again is harmless, even if it arrives late, because the script does not add to the hold
-- count but sets it, and ignores an old count.
--
-- KEYS      the first two of internal/script/lua/redisson.lua
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant
-- ARGV[3]   number of this change of the count within the grant. If the number is not above that of the
--           last change, the count is ignored
-- ARGV[4]   hold count
-- ARGV[5]   lease in ms, or 0 to leave the lease as it is
-- ARGV[6]   ms for which the metadata outlives the lease
-- ARGV[7]   CHANNEL
-- ARGV[8]   HOW
--
-- Replies
--   K   the lock is held under this token
--   L   the lock is not held under this token. If its hash was deleted, waiters are notified

if update() then
  return 'K'
end
onMaster()
publishIfGone(ARGV[8], ARGV[7])
return 'L'

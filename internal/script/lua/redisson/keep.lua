-- Sets the hold count of a held lock, and extends its lease to at least ARGV[5] ms. It serves re-entry,
-- the unlock of a nested hold, renewal and Extend.
--
-- Sending the request again is harmless, even late, because it sets and never adds, and ignores an old count.
--
-- KEYS      the first two of internal/script/lua/redisson.lua
-- ARGV[1]   owner field
-- ARGV[2]   token of the grant
-- ARGV[3]   number of this change of the count within the grant. If it is not above the last one, the count
--           is ignored
-- ARGV[4]   hold count
-- ARGV[5]   lease in ms, or 0 for the present lease
-- ARGV[6]   ms for which the metadata outlives the lease
-- ARGV[7]   CHANNEL, and ARGV[8] HOW
--
-- Replies
--   K   the lock is held under this token
--   L   it is not. Waiters are notified if its data were deleted

if update() then
  return 'K'
end
onMaster()
publishIfGone(ARGV[8], ARGV[7])
return 'L'

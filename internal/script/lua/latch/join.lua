-- Leases one count of the current run to a party. If a party of the same name has died, the new party
-- replaces it.
--
-- ARGV[1], ARGV[2] see the function once in latch.lua. The id is also the id of the party
-- ARGV[3] name of the party
-- ARGV[4] lease in ms
--
-- Replies
--   J NOW RUN      joined
--   T NOW          another party has this name, and its lease has not ended
--   F NOW          all counts of the run are leased, or there is no run
--   X NOW          an earlier copy has joined, but the lease of the party has ended since, or the party has
--                  counted or left. The reply is also X if leave.lua has withdrawn the request
--   V NOW, U NOW   see once

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q', 'w')
checkIsLatch(run[5])
local n, parties = readNumber(KEYS[1], 'n', run[1]), readNumber(KEYS[1], 'q', run[4])
local till, id, replaces = leaseOf(ARGV[3])
local alive = till and till > now
-- If an earlier copy of this request has joined, and the lease has not ended, the lease starts again.
if not alive or id ~= ARGV[1] then
  replaces = till and ' R' or ''
  local before = earlierReply(ARGV[1], deadline, now)
  if before or alive or not till and parties >= n then
    return onMaster((before or alive and 'T' or 'F') .. ' ' .. stamped)
  end
end
remember(ARGV[1], deadline, 'X')
redis.call('HSET', KEYS[1], 'p:' .. ARGV[3], toString(now + ARGV[4] * 1000) .. ' ' .. ARGV[1] .. replaces,
  'q', toString(till and parties or parties + 1))
redis.call('HDEL', KEYS[1], 'f')
keepAlive(run[3], ARGV[4])
tidy(now, run[5])
redis.call('PUBLISH', KEYS[1], 'L ' .. (run[2] or '') .. ' ' .. ARGV[4])
return 'J ' .. stamped .. ' ' .. (run[2] or '')

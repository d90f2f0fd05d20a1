-- Leases one count of the run that is under way to a party.
--
-- ARGV[1], ARGV[2] as of once. The id is that of the party, too
-- ARGV[3] name of the party
-- ARGV[4] lease in milliseconds
--
-- Reply: 'J NOW RUN' joined, 'T NOW' another one has joined by this name, 'F NOW' there is no count to lease,
--        'X NOW' it has joined, and that is over; 'V NOW' or 'U NOW' as of once

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q', 'w')
ours(run[5])
local n, parties = whole(KEYS[1], 'n', run[1]), whole(KEYS[1], 'q', run[4])
local till, id = leased(ARGV[3])
local alive = till and till > now
if not alive or id ~= ARGV[1] then -- else an earlier copy has joined; the lease begins anew
  local before = known(ARGV[1], deadline, now)
  if before or alive or not till and parties >= n then
    return onMaster((before or alive and 'T' or 'F') .. ' ' .. stamped)
  end
end
remember(ARGV[1], deadline, 'X')
redis.call('HSET', KEYS[1], 'p:' .. ARGV[3], stamp(now + ARGV[4] * 1000) .. ' ' .. ARGV[1],
  'q', stamp(till and parties or parties + 1))
redis.call('HDEL', KEYS[1], 'f')
live(run[3])
tidy(now, run[5])
redis.call('PUBLISH', KEYS[1], 'L ' .. (run[2] or '') .. ' ' .. ARGV[4])
return 'J ' .. stamped .. ' ' .. (run[2] or '')

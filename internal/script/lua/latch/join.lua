-- Leases one count of the run that is under way to a party.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request, and of the party
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
-- ARGV[4] name of the party
-- ARGV[5] lease in milliseconds
--
-- Reply: 'J NOW RUN' joined, 'T NOW' another one has joined by this name, 'F NOW' there is no count to lease,
--        'X NOW' it has joined, and that is over; 'V NOW' or 'U NOW' as of set.lua

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q')
local till, id = leased(ARGV[4])
if id == ARGV[1] and till > now then -- by an earlier copy; the lease counts from when this one was sent
  sooner(now + ARGV[5] * 1000, ARGV[4])
  redis.call('HSET', KEYS[1], 'p:' .. ARGV[4], stamp(now + ARGV[5] * 1000) .. ' ' .. id)
  return 'J ' .. stamped .. ' ' .. (run[2] or '')
end
local before = known(ARGV[1], deadline, now, stamped)
if before then
  return before
end
if not run[1] then
  return 'F ' .. stamped
end
local n, parties = whole(KEYS[1], 'n', run[1]), whole(KEYS[1], 'q', run[4])
if till and till > now then
  return 'T ' .. stamped
end
if not till and parties >= n then
  return 'F ' .. stamped
end
remember(ARGV[1], deadline, 'X')
sooner(now + ARGV[5] * 1000, ARGV[4])
redis.call('HSET', KEYS[1], 'p:' .. ARGV[4], stamp(now + ARGV[5] * 1000) .. ' ' .. ARGV[1],
  'q', stamp(till and parties or parties + 1))
live(run[3])
tidy(now)
redis.call('PUBLISH', ARGV[3], 'L ' .. (run[2] or '') .. ' ' .. ARGV[5])
return 'J ' .. stamped .. ' ' .. (run[2] or '')

-- Sets the count, if no run is under way.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request, and of the run that it begins
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] count
-- ARGV[4] lifetime in milliseconds
--
-- Reply: 'S NOW 1' set, 'S NOW 0' a run is under way,
--        'V NOW' the request came too late and no copy of it ran, 'U NOW' it came so late that this is not
--        known

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local before = known(ARGV[1], deadline, now, stamped)
if before then
  return before
end
local running = redis.call('HGET', KEYS[1], 'n')
local reply = running and 'S 0' or 'S 1'
remember(ARGV[1], deadline, reply)
if not running then
  redis.call('HSET', KEYS[1], 'n', ARGV[3], 'r', ARGV[1], 'k', ARGV[4], 'q', '0')
  live(ARGV[4])
end
tidy(now)
return answer(reply, stamped)

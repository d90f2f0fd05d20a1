-- Ends the run that is under way, for all that wait for it.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
--
-- Reply: 'D NOW 1' deleted, 'D NOW 0' no run is under way; 'V NOW' or 'U NOW' as of set.lua

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local before = known(ARGV[1], deadline, now, stamped)
if before then
  return before
end
local run = redis.call('HMGET', KEYS[1], 'n', 'r')
local reply = run[1] and 'D 1' or 'D 0'
remember(ARGV[1], deadline, reply)
if run[1] then
  finish(run[2] or '', 'D', now, ARGV[3])
end
tidy(now)
return answer(reply, stamped)

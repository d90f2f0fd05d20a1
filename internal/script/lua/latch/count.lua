-- Counts down by one.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
--
-- Reply: 'C NOW RUN COUNT' counted; 'C NOW' no run is under way, so there was nothing to do;
--        'V NOW' or 'U NOW' as of set.lua

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local before = known(ARGV[1], deadline, now, stamped)
if before then
  return before
end
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k')
local n = whole(KEYS[1], 'n', run[1])
local reply = 'C'
if run[1] then
  reply = 'C ' .. (run[2] or '') .. ' ' .. stamp(math.max(n - 1, 0))
end
remember(ARGV[1], deadline, reply)
if run[1] then
  less(n, run[2] or '', run[3], now, ARGV[3])
end
tidy(now)
return answer(reply, stamped)

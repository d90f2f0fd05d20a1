-- Counts down by one.
--
-- ARGV    see the function once in latch.lua
--
-- Replies
--   C NOW COUNT RUN   counted down to COUNT
--   C NOW 0           there is no run, so nothing changed
--   V NOW, U NOW      see once

return once(function(now)
  local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k')
  if not run[1] then
    return 'C 0 '
  end
  local id = run[2] or ''
  return 'C ' .. decrement(readNumber(KEYS[1], 'n', run[1]), id, run[3], now) .. ' ' .. id
end)

-- Ends the current run by deletion, and notifies all waiters.
--
-- ARGV    see the function once in latch.lua
--
-- Replies
--   D NOW 1        the run was deleted
--   D NOW 0        there is no run, so nothing changed
--   V NOW, U NOW   see once

return once(function(now)
  local run = redis.call('HMGET', KEYS[1], 'n', 'r')
  if not run[1] then
    return 'D 0'
  end
  endRun(run[2] or '', 'D', now)
  return 'D 1'
end)

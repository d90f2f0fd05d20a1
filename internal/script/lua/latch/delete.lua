-- Ends the run that is under way, for all that wait for it.
--
-- ARGV    of once
--
-- Reply: 'D NOW 1' deleted, 'D NOW 0' no run is under way; 'V NOW' or 'U NOW' as of once

return once(function(now)
  local run = redis.call('HMGET', KEYS[1], 'n', 'r')
  if not run[1] then
    return 'D 0'
  end
  finish(run[2] or '', 'D', now)
  return 'D 1'
end)

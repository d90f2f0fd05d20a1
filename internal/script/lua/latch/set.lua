-- If there is no run, begins a run by setting the count.
--
-- ARGV[1], ARGV[2] see the function once in latch.lua. The id is also the id of the run
-- ARGV[3] count
-- ARGV[4] lifetime in ms
--
-- Replies
--   S NOW 1        the count was set
--   S NOW 0        there already is a run, so nothing changed
--   V NOW, U NOW   see once

return once(function()
  if redis.call('HGET', KEYS[1], 'n') then
    return 'S 0'
  end
  redis.call('HSET', KEYS[1], 'n', ARGV[3], 'r', ARGV[1], 'k', ARGV[4], 'q', '0')
  keepAlive(ARGV[4])
  return 'S 1'
end)

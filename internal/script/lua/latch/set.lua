-- Sets the count, if no run is under way.
--
-- ARGV[1], ARGV[2] of once. The id is that of the run which it begins, too
-- ARGV[3] count
-- ARGV[4] lifetime in milliseconds
--
-- Reply: 'S NOW 1' set, 'S NOW 0' a run is under way; 'V NOW' or 'U NOW' as of once

return once(function()
  if redis.call('HGET', KEYS[1], 'n') then
    return 'S 0'
  end
  redis.call('HSET', KEYS[1], 'n', ARGV[3], 'r', ARGV[1], 'k', ARGV[4], 'q', '0')
  live(ARGV[4])
  return 'S 1'
end)

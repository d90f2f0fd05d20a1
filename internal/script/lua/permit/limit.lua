-- Sets how many permits there are. If there are more now, waiters are served. If there are fewer, holders
-- keep what they have, but sessions that may keep permits while no goroutine has them are notified, and
-- return those as soon as they are idle.
--
-- ARGV[1] how many
-- ARGV[2] '1': only if Redis has no number
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds for which the metadata of unused permits is kept
-- ARGV[5] id of the request, which all its copies have
-- ARGV[6] Redis time in microseconds after which it has expired, or it could undo a later one
--
-- Reply: 'S' set, 'N' not set, 'V NOW' expired: came too late

local keep = tonumber(ARGV[4])
local now, stamped = clock()
if now > tonumber(ARGV[6]) then
  return 'V ' .. stamped
end
local known = redis.call('HMGET', KEYS[2], 'n', 'i')
if ARGV[2] == '1' and known[1] then
  return onMaster(known[2] == ARGV[5] and 'S' or 'N', KEYS[2])
end
redis.call('HSET', KEYS[2], 'n', ARGV[1], 'i', ARGV[5])
outlive(keep, keep)
local over, changed = expire(now), nil
if redis.call('PTTL', KEYS[3]) ~= -2 then
  changed = select(2, serve('', ARGV[3], now, keep, tonumber(ARGV[1])))
end
if used() > tonumber(ARGV[1]) and redis.call('HGET', KEYS[6], 'k') then
  wantAll('', ARGV[3], now)
end
settle(over)
if changed then
  handOnPermits(ARGV[3], now)
end
return 'S'

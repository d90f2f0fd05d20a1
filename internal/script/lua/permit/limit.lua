-- Sets how many permits there are. Those that wait are served if there are more now. Holders keep what they
-- have if there are fewer.
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
  return onMaster(known[2] == ARGV[5] and 'S' or 'N')
end
redis.call('HSET', KEYS[2], 'n', ARGV[1], 'i', ARGV[5])
outlive(keep, keep)
if redis.call('PTTL', KEYS[3]) ~= -2 then
  local over = expire(now)
  serve('', ARGV[3], now, keep, tonumber(ARGV[1]))
  settle(over)
end
return 'S'

-- Replaces all keys of the server by the keys of a state.
--
-- ARGV    for each key: its name, 'hash' or 'zset', its time to live in milliseconds or '', the number of
--         pairs, and the pairs: field and value, or score and member
--
-- Reply: the time in milliseconds by the server's own clock, or 'late' if the script took longer than that
-- millisecond

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('DEL', key)
end
local began = clock()
local i = 1
while i <= #ARGV do
  local key, kind, ttl, pairs = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  for k = i + 4, i + 2 + 2 * pairs, 2 do
    redis.call(kind == 'hash' and 'HSET' or 'ZADD', key, ARGV[k], ARGV[k + 1])
  end
  if ttl ~= '' then
    redis.call('PEXPIRE', key, ttl)
  end
  i = i + 4 + 2 * pairs
end
return clock() == began and string.format('%.0f', began) or 'late'

-- The second round, where a server refused the first token: a higher one, which is
-- accepted only from the holder of the lock here.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] the proposed token, higher than the attempt's first one
-- ARGV[3] how many tokens the attempt reserves
--
-- Reply: 'A' accepted, now or by an earlier copy of this request
--        'L' not held, or not above what is stored

local metadata = redis.call('HMGET', KEYS[2], 't', 'b')
local stored, last = whole(KEYS[2], 't', metadata[1]), ARGV[2] + ARGV[3] - 1
if not redis.call('HGET', KEYS[1], ARGV[1]) then
  return 'L'
end
if metadata[2] ~= ARGV[1] and tonumber(ARGV[2]) <= stored then -- its own block is not in its way
  return 'L'
end
if last > stored then
  redis.call('HSET', KEYS[2], 't', stamp(last), 'b', ARGV[1])
end
return 'A'

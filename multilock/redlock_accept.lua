-- The second round, where a server refused the first token: a higher one, which is
-- accepted only from who holds the lock here.
--
-- KEYS    as in the prelude
-- ARGV[1] owner field
-- ARGV[2] the proposed token
-- ARGV[3] how many tokens the attempt reserves
--
-- Reply: 'A' accepted, now or by an earlier copy of this request
--        'N' not held, or not above what is stored

local memory = redis.call('HMGET', KEYS[2], 't', 'b')
local last = string.format('%.0f', ARGV[2] + ARGV[3] - 1)
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 'N'
end
if tonumber(ARGV[2]) > tonumber(memory[1] or 0) then
  redis.call('HSET', KEYS[2], 't', last, 'b', ARGV[1])
  return 'A'
end
return memory[1] == last and memory[2] == ARGV[1] and 'A' or 'N'

-- Counts down by one for a party. A party counts only once, so sending the request again is harmless.
--
-- ARGV[1] id of the request by which the party joined
-- ARGV[2] name of the party
-- ARGV[3] id of the run that the party has joined
--
-- Replies
--   C NOW   counted down, by this request or an earlier request of the party
--   P NOW   not counted, because the lease of the party has ended
--   Z NOW, D NOW, G NOW   the run has ended, see look.lua

local now, stamped = clock()
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q')
if run[2] ~= ARGV[3] then
  return onMaster(endOfRun(ARGV[3]) .. ' ' .. stamped)
end
if redis.call('HGET', KEYS[1], 'c:' .. ARGV[1]) then
  return onMaster('C ' .. stamped)
end
local till, id = leaseOf(ARGV[2])
if id ~= ARGV[1] or till <= now then
  return onMaster('P ' .. stamped)
end
local n, parties = readNumber(KEYS[1], 'n', run[1]), readNumber(KEYS[1], 'q', run[4])
-- A full server may refuse the first write of a script, but no later write, and no HDEL. So the first write
-- is the HDEL.
redis.call('HDEL', KEYS[1], 'p:' .. ARGV[2])
redis.call('HSET', KEYS[1], 'c:' .. ARGV[1], '1', 'q', toString(math.max(parties - 1, 0)))
decrement(n, run[2], run[3], now)
return 'C ' .. stamped

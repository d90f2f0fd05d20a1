-- Takes the lock from its holder, here or on a JVM. With a token, only a holder with this token loses it. All
-- waiters are notified. The holder notices with its next request.
--
-- KEYS      see internal/script/lua/redisson.lua
-- ARGV[1]   ms for which the metadata of a free lock is kept
-- ARGV[2]   the token that was seen, or '' for any holder
-- ARGV[3]   CHANNEL, and ARGV[4] HOW
--
-- Reply: the number of holders, 0 or 1

local owner, token = holder(true)
if not owner or ARGV[2] ~= '' and ARGV[2] ~= token then
  return onMaster('0')
end
redis.call('DEL', KEYS[1])
endUnknown(owner, tonumber(ARGV[1]))
publish(ARGV[4], ARGV[3])
if sharding(ARGV[4], ARGV[3]) then -- the caller may have other rights than the waiters, and so another mode
  redis.call('PUBLISH', ARGV[3], '0')
end
return '1'

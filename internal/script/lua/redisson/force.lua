-- Takes the lock from its holder, which may be a Lockline session or a JVM. If ARGV[2] is a token, only a
-- holder with this token loses the lock. All waiters are notified. The former holder notices its loss with
-- its next request.
--
-- KEYS      see internal/script/lua/redisson.lua
-- ARGV[1]   ms for which the metadata of a free lock is kept
-- ARGV[2]   token of the holder that is to lose the lock, or '' for any holder
-- ARGV[3]   CHANNEL
-- ARGV[4]   HOW
--
-- Reply: the number of holders that have lost the lock, 0 or 1

local owner, token = holder(true)
if not owner or ARGV[2] ~= '' and ARGV[2] ~= token then
  return onMaster('0')
end
redis.call('DEL', KEYS[1])
endUnknown(owner, tonumber(ARGV[1]))
publish(ARGV[4], ARGV[3])
if sharding(ARGV[4], ARGV[3]) then -- users with fewer rights may have subscribed by SUBSCRIBE
  redis.call('PUBLISH', ARGV[3], '0')
end
return '1'

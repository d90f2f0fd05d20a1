-- Frees the lock from any holder, or only from the holder whose token was seen. It is granted to the first
-- waiter that lives and has a subscription. The holder finds out with its next request that it has lost the
-- lock, or at once if its session keeps the lock while no goroutine has it. A hash that somebody has damaged
-- is deleted.
--
-- Sending the request again with a token is harmless: that token is not granted again.
--
-- KEYS      see internal/script/lua/queue.lua. Without the last two, the request fails with TRYAGAIN if there
--           is a queue, as in release.lua
-- ARGV[1]   CHANNELS
-- ARGV[2]   KEEP
-- ARGV[3]   the token that was seen; '': any
--
-- Reply: how many holders there were, 0 or 1

local now = clock()
local held = redis.call('HMGET', KEYS[1], 'owner', 'token')
local sane, s = pcall(read, '', now, ARGV[2])
if not sane and not held[1] then
  error(s, 0)
end
local owner = held[1]
if sane then
  owner = s.owner
end
if not owner or ARGV[3] ~= '' and ARGV[3] ~= held[2] then
  return onMaster('0')
end
if not sane then
  redis.call('DEL', KEYS[1])
  return '1'
end
if not KEYS[2] and s.queued > 0 then
  return redis.error_reply('TRYAGAIN the queue is needed')
end
local lingers = s.lingers
-- Somebody may have damaged the queue, so it is read before the first write.
local q = s.queued > 0 and lookUp(s, ARGV[1], {})
redis.call('HDEL', KEYS[1], 'owner', 'lingers')
if q and not handOver(s, nil, ARGV[1], q) then
  leave(s, q)
end
bury(s, owner, stamp(s.lives))
if lingers then
  want(s, owner, ARGV[1], lingers)
end
return '1'

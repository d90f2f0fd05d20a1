-- Functions for the scripts of locks that a JVM takes through Redisson, beside
-- internal/script/lua/metadata.lua. Redisson's own scripts read and write the first and the last of these
-- keys, and publish on the channel.
--
-- KEYS[1]   the lock's hash, Redisson's key of this name. Both sides keep owner field -> hold count in it,
--           and its time to live is the lease. A session of ours has three fields more:
--             t -> token of the grant   s -> number of the last change of the count   d -> holder info
-- KEYS[2]   the metadata, which Redisson does not know:
--             t -> last token granted   r -> last token released   l -> last token lost
--             a -> owner field that released last
--             OWNER -> Redis time in µs until which a copy of this attempt's request may arrive
-- KEYS[3]   Redisson's token counter: the token that was granted last
--
-- Arguments of several scripts:
--   CHANNEL   Redisson's channel of the lock
--   HOW       how messages are published there, see sharding in base.lua

-- publish notifies all waiters that the lock is free, in Redisson's own words. It returns how many clients of
-- this server got the message.
local function publish(how, topic)
  local count = sharding(how, topic) and redis.pcall('SPUBLISH', topic, '0')
  return type(count) == 'number' and count or redis.call('PUBLISH', topic, '0')
end

-- publishIfGone notifies the waiters of a lock whose hash was deleted: nothing else would.
local function publishIfGone(how, topic)
  if redis.call('HLEN', KEYS[1]) == 0 then
    publish(how, topic)
  end
end

-- memory reads the metadata for an attempt. It returns the last token; the same token again if that was not
-- released, so that it was lost if the lock is free now; and whether the attempt has ended, so that this is
-- a stale copy of its request.
local function memory(owner)
  local metadata = redis.call('HMGET', KEYS[2], 't', 'r', 'a', owner)
  local last = whole(KEYS[2], 't', metadata[1])
  return last, metadata[1] and metadata[1] ~= metadata[2] and last or nil,
    metadata[3] == owner or metadata[4]
end

-- Functions for the scripts of locks that Lockline shares with Redisson on a JVM. Redisson's own scripts read
-- and write KEYS[1] and KEYS[3], and publish on CHANNEL.
--
-- KEYS[1]   the lock's hash. The key is the name of the lock, and its time to live is the lease. Both
--           Lockline and Redisson store a field OWNER -> hold count in the hash. A Lockline session stores
--           three more fields:
--             t -> token of the grant   s -> number of the last change of the count   d -> holder info
-- KEYS[2]   the metadata, a hash that Redisson does not use:
--             t -> last token granted   r -> last token released   l -> last token lost
--             a -> owner field of the attempt that released last
--             OWNER -> tombstone of an attempt that has ended: the Redis time in µs until which a copy of the
--                      attempt's request may arrive
-- KEYS[3]   Redisson's token counter: the token that was granted last
--
-- Arguments of several scripts:
--   CHANNEL   Redisson's channel of the lock
--   HOW       how messages are published on CHANNEL, see sharding in base.lua

-- keepMetadata ensures that the metadata lives for at least `ms` more milliseconds. If it has to set the
-- expiry, it adds `keep` ms, so that not every request has to set the expiry.
local function keepMetadata(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], toString(ms + keep))
  end
end

-- holder returns the owner field, the token and the holder info of the hash in KEYS[1]. The owner field is
-- nil if there is no owner. If the hash has a token, Lockline wrote the hash. If such a hash is damaged, the
-- script ends with an error, unless `any` is true.
local function holder(any)
  local held = redis.call('HGETALL', KEYS[1])
  local about, owner, other, count, token = ''
  for i = 1, #held, 2 do
    local field, value = held[i], held[i + 1]
    if field == 't' then
      token = value
    elseif field == 'd' then
      about = value
    elseif field ~= 's' then
      other = owner
      owner, count = field, value
    end
  end
  if owner and token and not any then -- a hash that a JVM has written has no token
    readNumber(KEYS[1], 't', token)
    if other then
      failDamaged(KEYS[1], owner, count, 'a second owner beside "' .. other .. '"')
    end
  end
  return owner, token or '0', about
end

-- nextToken returns the next token: the Redis time or, if that is higher, the last token plus one.
local function nextToken(last, now)
  return toString(math.max(now, last + 1))
end

-- grant makes an attempt the owner, with the given token and a lease in ms. about is its holder info. If the
-- metadata must still record that tokens were lost, `lost` is the highest of these tokens. Otherwise `lost`
-- is nil or false.
local function grant(owner, about, lease, token, keep, lost)
  redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  local expires = redis.pcall('PEXPIRE', KEYS[1], toString(lease))
  if expires ~= 1 then -- the user has no right to PEXPIRE; a lock without an expiry must not stay
    redis.call('DEL', KEYS[1])
    error(expires.err, 0)
  end
  if lost then
    redis.call('HSET', KEYS[2], 't', token, 'l', toString(lost))
  else
    redis.call('HSET', KEYS[2], 't', token)
  end
  keepMetadata(lease + keep, keep)
end

-- renew extends the lease of a held lock to at least `ms` milliseconds from now.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], toString(ms))
    keepMetadata(ms + keep, keep)
  else
    onMaster()
  end
end

-- update reads the ARGV of keep.lua. If ARGV[1] holds the lock under the token ARGV[2], update sets the hold
-- count, extends the lease to at least ARGV[5] ms, and returns true. A change of the count that is not newer
-- than the last change is ignored, so a stale copy does not change the count. If ARGV[1] does not hold the
-- lock, update returns false.
local function update()
  local held = redis.call('HMGET', KEYS[1], 't', 's', ARGV[1])
  if held[1] ~= ARGV[2] or not held[3] then
    return false
  end
  local change, ms = parseNumber(held[2] or ''), tonumber(ARGV[5])
  if ms > 0 then
    renew(ms, tonumber(ARGV[6]))
  else
    onMaster()
  end
  if not change or tonumber(ARGV[3]) > change then
    -- The lease is extended even if the server refuses to store the count. A later request then stores it.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4], 's', ARGV[3])
  end
  return true
end

-- released reports whether a token was granted and released. Every such token is above the last lost token,
-- and not above the last released token.
local function released(token)
  local metadata = redis.call('HMGET', KEYS[2], 'r', 'l')
  return metadata[1] and tonumber(token) <= readNumber(KEYS[2], 'r', metadata[1])
    and tonumber(token) > readNumber(KEYS[2], 'l', metadata[2])
end

-- writeTombstone stores that an attempt has ended. `late` is the Redis time in µs until which a copy of its
-- request may arrive. If late is '0', no copy is in flight, and nothing is written. Otherwise writeTombstone
-- also removes tombstones whose time has passed, or is not a number.
local function writeTombstone(owner, late, keep)
  if late == '0' then
    return
  end
  local now, all = clock(), redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and (tonumber(all[i + 1]) or 0) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(late) >= now then
    redis.call('HSET', KEYS[2], owner, late)
    keepMetadata(keep, keep)
  end
end

-- endUnknown stores a tombstone for an attempt whose session does not know yet that the attempt has ended.
-- Without the tombstone, a stale copy of the attempt's request could take the lock again. The tombstone is
-- kept as long as the metadata. A stale copy was sent before the grant, so it becomes void before that time.
local function endUnknown(owner, keep)
  local now = clock()
  writeTombstone(owner, toString(now + redis.call('PTTL', KEYS[2]) * 1000), keep)
end

-- publish notifies waiters that the lock is free, with the message that Redisson uses. publish takes HOW and
-- CHANNEL. HOW selects classic or sharded pub/sub. The message reaches only the waiters that are
-- subscribed in this mode. publish returns the number of clients of this server that got the message.
local function publish(how, topic)
  local count = sharding(how, topic) and redis.pcall('SPUBLISH', topic, '0')
  return type(count) == 'number' and count or redis.call('PUBLISH', topic, '0')
end

-- publishIfGone notifies the waiters if the lock's hash does not exist. Somebody may have deleted the hash,
-- and then nothing else notifies the waiters that the lock is free.
local function publishIfGone(how, topic)
  if redis.call('HLEN', KEYS[1]) == 0 then
    publish(how, topic)
  end
end

-- readMetadata reads the metadata for an attempt, and returns three values. The first is the last token. The
-- second is the same token if it was not released, and otherwise nil. If the lock is free now, a token that
-- was not released was lost. The third is true if the attempt has ended, so that this request is a stale
-- copy.
local function readMetadata(owner)
  local metadata = redis.call('HMGET', KEYS[2], 't', 'r', 'a', owner)
  local last = readNumber(KEYS[2], 't', metadata[1])
  return last, metadata[1] and metadata[1] ~= metadata[2] and last or nil,
    metadata[3] == owner or metadata[4]
end

-- Functions for the scripts of permits and of package redisson, which keep tokens and tombstones in a key of
-- its own, the metadata. internal/script/lua/permit.lua and redisson.lua describe all keys.
--
-- KEYS[1]   of package redisson: the hash of the lock
-- KEYS[2]   the metadata, a hash:
--             t -> last token that was granted   r -> last token that was released
--             l -> last token that was lost      a -> owner field that released last
--             OWNER -> Redis time in µs until which a copy of this attempt's request may arrive, though the
--             attempt has ended

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- holder returns the owner field, the token and the holder info of the hash in KEYS[1]; nil if there is no
-- owner. A hash that cannot be a grant of ours is an error, unless `any` is given.
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
  if owner and token and not any then -- a JVM's has no token
    whole(KEYS[1], 't', token)
    if other then
      bad(KEYS[1], owner, count, 'a second owner beside "' .. other .. '"')
    end
  end
  return owner, token or '0', about
end

-- above is the first token that is above the last one.
local function above(last, now)
  return stamp(math.max(now, last + 1))
end

-- grant makes an attempt the owner under a token. lost is the last token that was lost, or nil.
local function grant(owner, about, lease, token, keep, lost)
  redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  local expires = redis.pcall('PEXPIRE', KEYS[1], lease)
  if expires ~= 1 then -- the user has no right to PEXPIRE
    redis.call('DEL', KEYS[1])
    error(expires.err, 0)
  end
  if lost then
    redis.call('HSET', KEYS[2], 't', token, 'l', stamp(lost))
  else
    redis.call('HSET', KEYS[2], 't', token)
  end
  outlive(lease + keep, keep)
end

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], ms)
    outlive(ms + keep, keep)
  else
    onMaster()
  end
end

-- update reads the ARGV of a keep script. If ARGV[1] holds the lock under the token ARGV[2], update
-- sets the hold count, and extends the lease to at least ARGV[5] ms. A change that is older than the last one
-- is ignored, so a copy that comes twice or late changes nothing. It returns whether the lock is held.
local function update()
  local held = redis.call('HMGET', KEYS[1], 't', 's', ARGV[1])
  if held[1] ~= ARGV[2] or not held[3] then
    return false
  end
  local change, ms = sound(held[2] or ''), tonumber(ARGV[5])
  if ms > 0 then
    renew(ms, tonumber(ARGV[6]))
  else
    onMaster()
  end
  if not change or tonumber(ARGV[3]) > change then
    -- The lease comes first: a server short of memory refuses this, and takes it the next time.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4], 's', ARGV[3])
  end
  return true
end

-- released reports whether a token was granted and released: it is above the last token that was lost, and
-- not above the last token that was released.
local function released(token)
  local metadata = redis.call('HMGET', KEYS[2], 'r', 'l')
  return metadata[1] and tonumber(token) <= whole(KEYS[2], 'r', metadata[1])
    and tonumber(token) > whole(KEYS[2], 'l', metadata[2])
end

-- tombstone notes that an attempt is over though a copy of its request may arrive
-- until the Redis time late, and forgets the tombstones whose time has passed, or is none.
local function tombstone(owner, late, keep)
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
    outlive(keep, keep)
  end
end

-- disown notes that an attempt is over whose session does not know it: late copies of its request, which were
-- sent before it was granted, and expired before the metadata is forgotten, must not take the lock back.
local function disown(owner, keep)
  local now = clock()
  tombstone(owner, stamp(now + redis.call('PTTL', KEYS[2]) * 1000), keep)
end


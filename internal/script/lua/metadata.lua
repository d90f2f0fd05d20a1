-- What the scripts of all kinds of locks share. Package script gives each script what it uses of
-- this, behind the common case where that can be: creating a function takes time.
--
-- KEYS[1] the lock's hash: owner field -> hold count, t -> first token of the block
--         that was granted, s -> number of the last change of the count, d -> what
--         the holder's session says of itself, w -> others may wait for it, k -> its session may keep it
--         while no goroutine has it, and how that session is told (line.lua)
-- KEYS[2] the lock's metadata: t -> last token granted (of a block, the first), and once it is released, the
--         last one used; r -> last token released; l -> last token lost; a -> last owner field that released;
--         and for each attempt that was given up with a request under way, its owner field -> Redis time in
--         microseconds until which that request could arrive; z -> Redis time at which a session was last
--         refused a lock that another one could keep; v -> of an election, the last value: owner field and
--         token of its leader, the value's number, and the value

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- holder returns owner, token, what the owner's session says of itself, and k; nil
-- if the lock is free. What cannot be a grant of ours is an error, unless any will do.
local function holder(any)
  local held = redis.call('HGETALL', KEYS[1])
  local about, owner, other, count, token, kept = ''
  for i = 1, #held, 2 do
    local field, value = held[i], held[i + 1]
    if field == 't' then
      token = value
    elseif field == 'd' then
      about = value
    elseif field == 'k' then
      kept = value
    elseif field ~= 's' and field ~= 'w' then
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
  return owner, token or '0', about, kept
end

-- past reads the metadata: the last token that may have been used; the same again if
-- it was not released, so lost by now if the lock is free; and whether an attempt is over,
-- so that this is a late copy of its request.
local function past(owner)
  local metadata = redis.call('HMGET', KEYS[2], 't', 'r', 'a', owner)
  local last, lost = whole(KEYS[2], 't', metadata[1]), nil
  if metadata[1] and metadata[1] ~= metadata[2] then
    last = last + BLOCK - 1
    lost = last
  end
  return last, lost, metadata[3] == owner or metadata[4]
end

-- above is the first token of a block above last.
local function above(last, now)
  return stamp(math.max(now, last + 1))
end

-- grant makes an attempt the owner of a block of tokens. lost is the last token lost, if the lock was.
-- wanted: others may wait for it.
local function grant(owner, about, lease, token, keep, lost, wanted)
  if wanted then
    redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about, 'w', '1')
  else
    redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  end
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

-- conclude begins a release, whose ARGV it reads: it ends what the attempt holds, whatever the token, because
-- an attempt that ends needs nothing any more. Returns
--   the last token that counts as used; nil if nothing was ended. The rest of the block is given back
--   whether it was held under the token that was named, or any will do
--   whether others may wait. Then the lock's hash is left, or is to be deleted by the caller
--   what it is held under, if that is no token. Nothing was done then
local function conclude()
  local call, owner, token, used = redis.call, ARGV[1], ARGV[2], ARGV[6]
  local held = call('HMGET', KEYS[1], owner, 't', 'w')
  if not held[1] then
    return nil
  end
  if token ~= held[2] and not (held[2] and string.find(held[2], '^%d+$') and tonumber(held[2]) <= 9e15) then
    return nil, nil, nil, held[2] or ''
  end
  if held[3] then -- while a slot moves to another node, a script cannot make a key again
    call('HDEL', KEYS[1], owner, 'k')
  else
    call('DEL', KEYS[1])
  end
  local mine, most = token == held[2] or token == '', held[2] + BLOCK - 1
  if used == '' or not mine or token == '' and used ~= '0' and tonumber(used) < most then
    used = string.format('%.0f', most)
  elseif used == '0' then
    used = held[2]
  end
  -- Not possible while short of memory. What the grant kept alive need not be now, unless it was evicted.
  if redis.pcall('HSET', KEYS[2], 't', used, 'r', used, 'a', owner) == 3
      and call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then
    call('PEXPIRE', KEYS[2], 2 * ARGV[4])
  end
  return used, mine, held[3]
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

-- update sets the hold count of a lock that is held under a token, and a lease that is no shorter than asked.
-- It ignores a change that is older than the last. It sets and never adds, so a copy that comes twice or late
-- changes nothing. It reports whether the lock is held. ARGV are those of a keep script.
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

-- released: the token was granted once and released, by whomever since. Whatever
-- lies above the last token lost and not above the last one released was.
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


-- What the scripts of all kinds of locks share; it is put before each of them.
--
-- KEYS[1] the lock's hash: owner field -> hold count, t -> token, s -> number of
--         the last change of the count, d -> what the holder's session says of itself
-- KEYS[2] the lock's memory: t -> last token granted, r -> last token released,
--         l -> last token lost, a -> last owner field that released, and for each
--         attempt that was given up with a request under way, its owner field ->
--         Redis time in microseconds until which that request could arrive

local function stamp(number)
  return string.format('%.0f', number)
end

local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- outlive makes a key last for at least ms more.
local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, stamp(ms))
  end
end

-- holder returns owner, token and what the owner's session says of itself; nil
-- if the lock is free.
local function holder()
  local held = redis.call('HGETALL', KEYS[1])
  local owner, token, about = nil, '0', ''
  for i = 1, #held, 2 do
    local field, value = held[i], held[i + 1]
    if field == 't' then
      token = value
    elseif field == 'd' then
      about = value
    elseif field ~= 's' then
      owner = field
    end
  end
  return owner, token, about
end

-- grant makes an attempt the owner and returns its token. floor is a token that it
-- must exceed, beside those remembered.
local function grant(owner, about, lease, now, keep, floor)
  local memory = redis.call('HMGET', KEYS[2], 't', 'r')
  local token = stamp(math.max(now, tonumber(memory[1] or 0) + 1, floor + 1))
  redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  redis.call('PEXPIRE', KEYS[1], stamp(lease))
  if memory[1] and memory[1] ~= memory[2] then
    redis.call('HSET', KEYS[2], 't', token, 'l', memory[1])
  else
    redis.call('HSET', KEYS[2], 't', token)
  end
  outlive(KEYS[2], lease + keep)
  return token
end

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], stamp(ms))
    outlive(KEYS[2], ms + keep)
  end
end

-- over: the attempt has ended, and this is a late copy of its request.
local function over(owner)
  local memory = redis.call('HMGET', KEYS[2], 'a', owner)
  return memory[1] == owner or memory[2]
end

-- free ends what an attempt was granted, whatever the token: once the attempt
-- ends, nobody wants it.
local function free(owner, token, keep)
  redis.call('DEL', KEYS[1])
  redis.pcall('HSET', KEYS[2], 'r', token, 'a', owner) -- not possible while short of memory
  redis.call('PEXPIRE', KEYS[2], stamp(keep))
end

-- released: the token was granted once and released, by whomever since. Whatever
-- lies above the last token lost and not above the last one released was.
local function released(token)
  local memory = redis.call('HMGET', KEYS[2], 'r', 'l')
  return memory[1] and tonumber(token) <= tonumber(memory[1]) and tonumber(token) > tonumber(memory[2] or 0)
end

-- mark notes that an attempt is over though a copy of its request may arrive
-- until the Redis time late, and forgets the marks whose time has passed.
local function mark(owner, late, keep)
  if late == '0' then
    return
  end
  local now, all = clock(), redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and tonumber(all[i + 1]) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(late) >= now then
    redis.call('HSET', KEYS[2], owner, late)
    outlive(KEYS[2], keep)
  end
end

-- map reads a hash; false if it is empty, which would not encode as an object.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

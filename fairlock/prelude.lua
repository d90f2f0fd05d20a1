-- What the fair lock's scripts share; it is put before each of them.
--
-- KEYS[1] the lock's hash: owner field -> hold count, t -> token, s -> number of
--         the last change of the count, d -> what the holder's session says of itself
-- KEYS[2] the lock's memory: t, r, l, a and marks as for the reentrant lock, and
--         q -> last ticket
-- KEYS[3] queue: waiting attempts by ticket
-- KEYS[4] alive: the same attempts by the Redis time in microseconds until which
--         each is known to live
-- KEYS[5] what the session of each says of itself

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

local function holder()
  local held, owner, token = redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #held, 2 do
    if held[i] == 't' then
      token = held[i + 1]
    elseif held[i] ~= 's' and held[i] ~= 'd' then
      owner = held[i]
    end
  end
  return owner, token
end

-- grant makes an attempt the owner and returns its token.
local function grant(owner, about, lease, now, keep)
  local memory = redis.call('HMGET', KEYS[2], 't', 'r')
  local token = now
  if memory[1] then
    token = math.max(token, tonumber(memory[1]) + 1)
  end
  token = stamp(token)
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

-- leave takes attempts out of the queue.
local function leave(...)
  redis.call('ZREM', KEYS[3], ...)
  redis.call('ZREM', KEYS[4], ...)
  redis.call('HDEL', KEYS[5], ...)
end

-- first is the waiter who is next. The dead are dropped, all of them at once.
local function first(now)
  while true do
    local dead = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. stamp(now), 'LIMIT', 0, 1000)
    if #dead == 0 then
      return redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    end
    leave(unpack(dead))
  end
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- handOver gives a free lock to the first living waiter, for as long as it is known
-- to live, and tells its session unless that is the one that asks, which the reply
-- tells. Returns owner and token, or nothing.
local function handOver(asking, channels, now, keep)
  local owner = first(now)
  if not owner then
    return
  end
  local lease = math.ceil((tonumber(redis.call('ZSCORE', KEYS[4], owner)) - now) / 1000) + 1
  local token = grant(owner, redis.call('HGET', KEYS[5], owner) or '', lease, now, keep)
  leave(owner)
  if session(owner) ~= asking then
    redis.call('PUBLISH', channels .. session(owner), owner .. ' ' .. token)
  end
  return owner, token
end

-- What the fair lock's scripts share, behind the prelude of all kinds.
--
-- KEYS[2] the memory; beside the rest q -> last ticket
-- KEYS[3] queue: waiting attempts by ticket
-- KEYS[4] alive: the same attempts by the Redis time in microseconds until which
--         each is known to live
-- KEYS[5] what the session of each says of itself

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
-- tells. Returns owner, token and what the owner's session says of itself, or nothing.
local function handOver(asking, channels, now, keep)
  local owner = first(now)
  if not owner then
    return
  end
  local lease = math.ceil((tonumber(redis.call('ZSCORE', KEYS[4], owner)) - now) / 1000) + 1
  local about = redis.call('HGET', KEYS[5], owner) or ''
  local token = grant(owner, about, lease, now, keep, 0)
  leave(owner)
  if session(owner) ~= asking then
    redis.call('PUBLISH', channels .. session(owner), owner .. ' ' .. token)
  end
  return owner, token, about
end

-- What the fair lock's scripts share, behind the prelude of all kinds.
--
-- KEYS[2] the memory; beside the rest q -> last ticket
-- KEYS[3] queue: waiting attempts by ticket
-- KEYS[4] alive: the same attempts by the Redis time in microseconds until which
--         each is known to live
-- KEYS[5] how many wait with each attempt, and what their session says of itself

-- leave takes attempts out of the queue.
local function leave(...)
  redis.call('ZREM', KEYS[3], ...)
  redis.call('ZREM', KEYS[4], ...)
  redis.call('HDEL', KEYS[5], ...)
end

-- first is the waiter who is next, the time until which it is known to live, and the
-- time now, which is read here if the caller has not. If the waiter is dead, all of the dead are dropped.
local function first(now)
  while true do
    local next = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not next then
      return
    end
    now = now or clock()
    local alive = tonumber(redis.call('ZSCORE', KEYS[4], next) or 0)
    if alive >= now then
      return next, alive, now
    end
    leave(next)
    local dead = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. stamp(now), 'LIMIT', 0, 1000)
    if #dead > 0 then
      leave(unpack(dead))
    end
  end
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- lives notes that somebody waits for at least liveness more.
local function lives(liveness, keep)
  if redis.call('PTTL', KEYS[3]) < liveness then
    redis.call('PEXPIRE', KEYS[3], 2 * liveness)
    redis.call('PEXPIRE', KEYS[4], 2 * liveness)
    redis.call('PEXPIRE', KEYS[5], 2 * liveness)
  end
  outlive(2 * liveness + keep, keep)
end

-- handOver gives a free lock to the first living waiter, for as long as it is known
-- to live, and tells its session unless that is the one that asks, which the reply
-- tells. last and lost are what past says. Returns owner, token and what the owner's
-- session says of itself, or nothing.
local function handOver(asking, channels, now, keep, last, lost)
  local owner, alive
  owner, alive, now = first(now)
  if not owner then
    return
  end
  local about = string.match(redis.call('HGET', KEYS[5], owner) or '', ' (.*)') or ''
  local token = grant(owner, about, math.ceil((alive - now) / 1000) + 1, now, keep, last, lost)
  leave(owner)
  if session(owner) ~= asking then
    redis.call('PUBLISH', channels .. session(owner), owner .. ' ' .. token)
  end
  return owner, token, about
end

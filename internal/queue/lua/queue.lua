-- What the fair lock's scripts share, beside internal/protocol/lua/shared.lua.
--
-- KEYS[2] the metadata; beside the rest q -> last ticket
-- KEYS[3] queue: waiting attempts by ticket
-- KEYS[4] alive: the same attempts by the Redis time in microseconds until which
--         each is known to live
-- KEYS[5] 'SIZE LEASE NONCE ABOUT' of each attempt: how many wait with it, the lease in milliseconds that it asks
--         for, what proves to its session that a message about it is Redis' own, and what
--         its session says of itself

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
    local alive = tonumber(redis.call('ZSCORE', KEYS[4], next) or 0) or 0
    if alive > now + 1e15 then -- decades: it is no liveness time
      alive = 0
    end
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

-- handOver gives a free lock to the first living waiter, for the lease that it asks for, but not for longer than
-- it is known to live, and tells its session unless that is the one that asks, which the reply
-- tells. last and lost are what past says. Returns owner, token, what the owner's
-- session says of itself, and the lease in milliseconds, or nothing.
local function handOver(asking, channels, now, keep, last, lost)
  local owner, alive
  owner, alive, now = first(now)
  if not owner then
    return
  end
  local lease, nonce, about = string.match(redis.call('HGET', KEYS[5], owner) or '', '^%d+ (%d+) (%S*) (.*)')
  lease = math.min(tonumber(lease or 9e15), math.ceil((alive - now) / 1000) + 1)
  local token = grant(owner, about or '', lease, now, keep, last, lost)
  leave(owner)
  redis.call('HSET', KEYS[1], 'w', '1') -- others may
  if session(owner) ~= asking then
    redis.call('PUBLISH', channels .. session(owner), table.concat({ owner, token, stamp(now), stamp(lease), nonce or '' }, ' '))
  end
  return owner, token, about or '', stamp(lease)
end

-- What the scripts of a lock with a queue share, beside internal/script/lua/shared.lua and
-- internal/script/lua/line.lua, which describe the keys.

-- handOver gives a free lock to the first waiter that listens, for the lease that it asks for, but not for
-- longer than FIRST or than it is known to live, and tells its session unless that is the one that asks,
-- which the reply tells. The next is told when that lease is over, of another session if there is one: this
-- one may be frozen. last and lost are what past says. Returns owner, token, what the owner's session says of
-- itself, and what a release replies of this; or nothing.
local function handOver(asking, channels, now, keep, last, lost)
  local owner, alive, entry, at
  owner, alive, now, entry, at = listener(asking, channels, now)
  if not owner then
    return
  end
  local lease, nonce, about = string.match(entry, '^%d+ (%d+) (%S*) (.*)')
  lease = math.min(tonumber(lease or 9e15), math.ceil((alive - now) / 1000) + 1, FIRST)
  -- Now: while a slot moves, a queue that is empty may not be looked at.
  local next, _, _, its = listener(session(owner), channels, now, at + 1)
  if not next then
    next, _, _, its = listener('', channels, now, at + 1)
  end
  local token = above(last, now)
  grant(owner, about or '', lease, token, keep, lost, true)
  leave(owner)
  if next then
    tell('', channels, next, its, stamp(lease)) -- without its nonce, which any subscriber would know then
  end
  nonce = string.match(nonce or '', '^[^/+]*')
  tell(asking, channels, owner, entry, token, stamp(now), stamp(lease), nonce) -- last: Redis writes it first
  return owner, token, about or '', table.concat({ '', owner, token, stamp(lease) }, ' ')
end

-- depart ends an attempt that does not hold the lock: the attempt leaves the queue, if there are keys of one.
-- A lock that is free by now, because its data were deleted or its lease has expired, is handed over. If it
-- is taken, the waiters behind the attempt learn when to look. ARGV are those of release.lua. Returns the
-- reply.
local function depart()
  local owner, token, keep = ARGV[1], ARGV[2], tonumber(ARGV[4])
  local reply, last, lost = token ~= '' and released(token) and 'R' or 'L', nil, nil
  if KEYS[3] then
    local held = redis.call('HLEN', KEYS[1]) > 0
    if not held and redis.call('PTTL', KEYS[3]) ~= -2 then
      last, lost = past('') -- before the first write
    end
    -- Before the removal, which may delete the queue: while a slot moves, that key cannot be read then.
    local ahead = held and tonumber(redis.call('ZSCORE', KEYS[3], owner) or nil)
    local others = ahead and redis.call('ZRANGE', KEYS[3], 1, 1)[1]
    leave(owner)
    if others then
      handOn(holder(true) or '', ARGV[3], clock(), redis.call('PTTL', KEYS[1]), ahead)
    end
  else
    onMaster()
  end
  if last then
    local _, _, _, told = handOver(session(owner), ARGV[3], nil, keep, last, lost)
    reply = reply .. (told or '')
  end
  tombstone(owner, ARGV[5], keep)
  return reply
end

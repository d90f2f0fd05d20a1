-- Functions for the scripts of permits, beside internal/script/lua/metadata.lua and line.lua.
--
-- KEYS[1] holders: owner field of each by the Redis time in microseconds at which its lease ends
-- KEYS[2] metadata: t -> last token that may be in use; n -> how many permits there are; i -> id of the
--         request that has set that; and tombstones, as metadata.lua has them
-- KEYS[3], KEYS[4], KEYS[5] the queue: line.lua. SIZE is how many permits an attempt wants
-- KEYS[6] of each holder 'N TOKEN ABOUT', by its owner field: how many permits it has, the first token of its
--         grant, and what its session says of itself; u -> how many permits are in use; k -> some sessions
--         may keep theirs while no goroutine has them. Behind the TOKEN of these stand a '+' and how that
--         session is told (line.lua)

-- ALL is how many permits one takes that excludes all others: All in package protocol.
local ALL = 1000000000

-- holding is what is known of a holder: how many permits it has; its token; what its session says of itself;
-- how that is told if it may keep them, else ''; and if its lease is not over now, what is left, in
-- milliseconds.
local function holding(owner, now)
  local value = redis.call('HGET', KEYS[6], owner)
  if not value then
    return nil
  end
  local n, token, kept, about = string.match(value, '^(%d+) (%d+)%+?(%d?) (.*)$')
  if not n then
    bad(KEYS[6], owner, value, 'not a number of permits and a token')
  end
  local till = now and tonumber(redis.call('ZSCORE', KEYS[1], owner) or 0)
  return tonumber(n), token, about, kept, till and till > now and math.ceil((till - now) / 1000) or nil
end

-- used is how many permits are in use.
local function used()
  return whole(KEYS[6], 'u', redis.call('HGET', KEYS[6], 'u'))
end

-- giveBack returns the permits of a holder. It stays in KEYS[1] until settle: while a slot moves to another
-- node, a script cannot make a key again that it has deleted.
local function giveBack(owner, n)
  redis.call('HDEL', KEYS[6], owner)
  redis.call('HSET', KEYS[6], 'u', stamp(math.max(0, used() - n)))
end

-- expire returns the permits of those whose leases are over. They are to be settled.
local function expire(now)
  if redis.call('PTTL', KEYS[1]) == -2 then
    if redis.call('PTTL', KEYS[6]) ~= -2 then -- KEYS[1] was deleted by hand
      redis.call('DEL', KEYS[6])
    end
    return {} -- without a write, behind which a server that is full would take any other
  end
  local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stamp(now), 'LIMIT', 0, BATCH)
  for _, owner in ipairs(over) do
    local n = holding(owner)
    if n then
      giveBack(owner, n)
    end
  end
  return over
end

-- settle forgets those that hold nothing any more: an attempt whose lease was over may have been given
-- permits again since.
local function settle(over)
  for _, owner in ipairs(over) do
    if not redis.call('HGET', KEYS[6], owner) then
      redis.call('ZREM', KEYS[1], owner)
    end
  end
  if redis.call('PTTL', KEYS[1]) == -2 then
    redis.call('DEL', KEYS[6])
  end
end

-- prolong sets the lease of a holder: ms from now. On a server that is full, that takes a write before it
-- that needs no memory.
local function prolong(owner, ms, now, keep)
  redis.call('ZADD', KEYS[1], stamp(now + ms * 1000), owner)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], 2 * ms)
    redis.call('PEXPIRE', KEYS[6], 2 * ms)
  end
  outlive(ms + keep, keep)
end

-- allot gives n permits to an attempt, and returns its token. One that takes all has a block of tokens for
-- its own.
local function allot(owner, n, about, lease, now, keep, limit)
  local token = math.max(now, whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) + 1)
  redis.call('HSET', KEYS[2], 't', stamp(n == ALL and token + BLOCK - 1 or token), 'n', stamp(limit))
  redis.call('HSET', KEYS[6], owner, n .. ' ' .. stamp(token) .. ' ' .. about, 'u', stamp(used() + n))
  prolong(owner, lease, now, keep)
  return stamp(token)
end

-- firstEnd returns the holder whose lease ends first, and the ms until then. Without a holder, it returns nil
-- and -1. Leases that have expired must be settled.
local function firstEnd(now)
  local owner, ends = unpack(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
  return owner, owner and math.max(0, math.ceil((ends - now) / 1000)) or -1
end

-- handOnPermits is handOn for the lease that ends first, see line.lua.
local function handOnPermits(channels, now, ahead)
  local owner, left = firstEnd(now)
  if owner then
    handOn(owner, channels, now, left, ahead)
  end
end

-- vacate removes an attempt from the queue, and has the next waiter send its request, which may be served
-- now.
local function vacate(owner, channels, now)
  local others = redis.call('ZSCORE', KEYS[3], owner) and redis.call('ZRANGE', KEYS[3], 1, 1)[1]
  leave(owner)
  if others then
    local next, _, _, entry = listener('', channels, now)
    if next then
      tell('', channels, next, entry, '0')
    end
  end
end

-- SERVE bounds how many one request serves, so that others need not wait long for it. The next one is told to
-- ask then.
local SERVE = 200

-- serve gives permits to those that wait, in their order, as long as there are enough for the next one. One
-- that wants more than there are at all leaves, and is told to ask, which says why. Each gets the lease that
-- it asks for, but not for longer than FIRST or than it is known to live, and its session is told. To that of
-- asking, the reply tells: 'OWNER TOKEN LEASE' each, which serve returns. It also returns whether the head of
-- the queue has changed, and cannot be served yet. Then the caller must call handOnPermits once leases are
-- settled. Otherwise no session would look if a process that was handed permits is gone.
local function serve(asking, channels, now, keep, limit)
  local reply, free, handed, changed = '', limit - used(), 0, false
  while true do
    local owner, alive, _, its, _, missing = listener(asking, channels, now)
    if not owner then
      return reply, false
    end
    changed = changed or missing
    local n, lease, nonce, about = string.match(its, '^(%d+) (%d+) (%S*) (.*)')
    n = tonumber(n)
    if not n then
      leave(owner) -- The entry was edited by hand. Remove it; the waiter will queue again.
      changed = true
    elseif n > limit then
      leave(owner)
      changed = true
      tell('', channels, owner, its, '0')
    elseif handed == SERVE then
      tell('', channels, owner, its, '0')
      return reply, false
    elseif n > free then
      return reply, changed
    else
      lease = math.min(tonumber(lease), math.ceil((alive - now) / 1000) + 1, FIRST)
      local token = allot(owner, n, about, lease, now, keep, limit)
      free, handed, changed = free - n, handed + 1, true
      leave(owner)
      tell(asking, channels, owner, its, token, stamp(now), stamp(lease), string.match(nonce, '^[^/+]*'))
      if session(owner) == asking then
        reply = reply .. ' ' .. owner .. ' ' .. token .. ' ' .. stamp(lease)
      end
    end
  end
end

-- wantAll tells the sessions of holders that may keep their permits that the session of asking wants some,
-- and ends that: of SERVE at most, and the next one that is refused tells the others.
local function wantAll(asking, channels, now)
  local all, told, rest = redis.call('HGETALL', KEYS[6]), 0, false
  for i = 1, #all, 2 do
    local has, how, about = string.match(all[i + 1], '^(%d+ %d+)%+(%d)( .*)$')
    if has and (told == SERVE or session(all[i]) == asking) then
      rest = true
    elseif has then
      redis.call('HSET', KEYS[6], all[i], has .. about)
      want(asking, channels, all[i], how, now)
      told = told + 1
    end
  end
  if not rest then
    redis.call('HDEL', KEYS[6], 'k')
  end
end

-- restore gives back the tokens of a holder's block behind the last one that was used, if that is known, and
-- no later grant has a token.
local function restore(n, token, lastUsed)
  if n == ALL and lastUsed ~= '' and lastUsed - token >= 0 and lastUsed - token < BLOCK
      and redis.call('HGET', KEYS[2], 't') == string.format('%.0f', token + BLOCK - 1) then
    redis.call('HSET', KEYS[2], 't', lastUsed)
  end
end

-- giveBackAtOnce is the common case of release.lua, whose ARGV it reads: there are no waiters, and no copy of
-- the attempt's request is under way. Leases that are over are left to the next one that asks. Returns the
-- reply, if it is decided.
local function giveBackAtOnce()
  local call, owner, token = redis.call, ARGV[1], ARGV[2]
  local held = call('HMGET', KEYS[6], owner, 'u')
  local n, first = string.match(held[1] or '', '^(%d+) (%d+)[ +]')
  local rest = n and held[2] and string.find(held[2], '^%d+$') and held[2] - n
  if not rest or rest < 0 or ARGV[5] ~= '0' or call('PTTL', KEYS[3]) ~= -2 then
    return nil
  end
  local till, time = call('ZSCORE', KEYS[1], owner), call('TIME')
  if rest == 0 then
    call('DEL', KEYS[1], KEYS[6])
  else
    call('ZREM', KEYS[1], owner)
    call('HDEL', KEYS[6], owner)
    call('HSET', KEYS[6], 'u', string.format('%.0f', rest))
  end
  restore(tonumber(n), first, ARGV[6])
  local lasts = till and till - string.format('%d%06d', time[1], time[2]) > 0
  return lasts and (token == '' or token == first) and 'R' or 'L'
end

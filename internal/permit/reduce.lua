-- Gives back all permits of a holder but one, as a writer does that goes on as a reader. Those that wait are served.
--
-- KEYS    internal/permit/lua/permit.lua
-- ARGV[1] owner field
-- ARGV[2] token of the grant
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds by which the metadata outlives the lease
-- ARGV[5] last token used of its block
--
-- Reply: 'R NOW' reduced, now or by an earlier copy, or 'L NOW' lost: not held under this token; and behind it 'OWNER TOKEN LEASE' of each attempt
-- of this session that was served
--
-- Generated from internal/permit/lua/reduce.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local owner, keep = ARGV[1], tonumber(ARGV[4])

-- bad ends the script with an error that Refusal of refusal.go reads. Nothing may have been written before.
local function bad(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c) return string.format('=%02X', string.byte(c)) end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) .. ',' .. plain(why) .. ' .', 0)
end

-- holding is what is known of a holder: how many permits it has, its token, and what its session says of itself.
local function holding(owner)
  local value = redis.call('HGET', KEYS[6], owner)
  if not value then
    return nil
  end
  local n, token, about = string.match(value, '^(%d+) (%d+) (.*)$')
  if not n then
    bad(KEYS[6], owner, value, 'not a number of permits and a token')
  end
  return tonumber(n), token, about
end

local n, token, about = holding(owner)
local till = redis.call('ZSCORE', KEYS[1], owner)
if not n or token ~= ARGV[2] or not till or tonumber(till) <= now then
  return 'L ' .. stamped
end
if n == 1 then
  return 'R ' .. stamped
end

-- BLOCK is how many tokens a grant reserves: Block in scripts.go.
local BLOCK = 1000

local function stamp(number)
  return string.format('%.0f', number)
end

-- MOST is the highest token that is taken from a key: numbers are exact up to 2^53, and it must leave room to add to.
local MOST = 9e15

-- sound is a value as a number; nil if it is not a whole one from 0 to most. Of what Lockline wrote, all are.
local function sound(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MOST) and number or nil
end

-- whole is what a field has, as a number; 0 if there is no such field. For a key without fields, field is ''.
local function whole(key, field, value, most)
  if not value then
    return 0
  end
  local number = sound(value, most)
  if not number then
    bad(key, field, value, sound(value) and 'more than a day above the clock of its server' or 'not a whole number from 0 to ' .. stamp(MOST))
  end
  return number
end

-- ALL is how many permits one takes that excludes all others: All of permit.go.
local ALL = 1000000000

-- used is how many permits are in use.
local function used()
  return whole(KEYS[6], 'u', redis.call('HGET', KEYS[6], 'u'))
end

-- giveBack returns the permits of a holder. It stays in KEYS[1] until settle: while a slot moves to another node, a script cannot make a key
-- again that it has deleted.
local function giveBack(owner, n)
  redis.call('HDEL', KEYS[6], owner)
  redis.call('HSET', KEYS[6], 'u', stamp(math.max(0, used() - n)))
end

-- yield gives back the permits of a holder, and the tokens of its block behind the last one that was used, if that is known, and is no former grant's.
local function yield(owner, n, token, lastUsed)
  giveBack(owner, n)
  if n == ALL and lastUsed ~= '' then
    local most = whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't'))
    if most == tonumber(token) + BLOCK - 1 and tonumber(lastUsed) <= most and tonumber(lastUsed) >= tonumber(token) then
      redis.call('HSET', KEYS[2], 't', lastUsed)
    end
  end
end

yield(owner, n, token, ARGV[5])
redis.call('HSET', KEYS[6], owner, '1 ' .. token .. ' ' .. about, 'u', stamp(used() + 1))

-- BATCH bounds how many leases that are over one request clears away. The rest count as in use until the next one.
local BATCH = 1000

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

local over = expire(now)
local limit = whole(KEYS[2], 'n', redis.call('HGET', KEYS[2], 'n'))

-- subscribed: this server has clients that listen to a channel. unknown is what it says without the right to ask.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
end

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- leave takes attempts out of the queue.
local function leave(...)
  redis.call('ZREM', KEYS[3], ...)
  redis.call('ZREM', KEYS[4], ...)
  redis.call('HDEL', KEYS[5], ...)
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- channel is where a session is told. A sharded one is in the slot of the lock, and has what follows the prefix in its key.
local function channel(channels, of, sharded)
  return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end

-- listens: this server has clients that listen to the channel of a session.
local function listens(channels, of, sharded, unknown)
  return subscribed(channel(channels, of, sharded), sharded, unknown)
end

-- bury takes a dead waiter out of the queue, and all others that are dead by now.
local function bury(waiter, now)
  leave(waiter)
  local dead = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. stamp(now), 'LIMIT', 0, 1000)
  if #dead > 0 then
    leave(unpack(dead))
  end
end

-- LOOK bounds how many waiters that do not listen are passed over at once.
local LOOK = 1000

-- listener is the first waiter that is known to live, and is not known to have stopped listening; the time until which it is
-- known to live; the time now, which is read here if the caller has not; its entry; and its index. If the first LOOK have stopped
-- listening, it is the first that lives, which may cost a first lease. Those that are passed over keep their
-- places: their connections may have just broken. Behind from, an index that may be nil, none is dropped, and only one that listens will do.
-- asking is a session that gets the reply.
local function listener(asking, channels, now, from)
  local i, passed = from or 0, nil
  for _ = 0, LOOK do
    local next = redis.call('ZRANGE', KEYS[3], i, i)[1]
    if not next then
      return
    end
    now = now or clock()
    local alive = tonumber(redis.call('ZSCORE', KEYS[4], next) or 0) or 0
    if alive > now + 1e15 then -- decades: it is no liveness time
      alive = 0
    end
    if alive < now and i == 0 then
      bury(next, now)
    else
      if alive >= now then
        local entry = redis.call('HGET', KEYS[5], next) or ''
        local marked = string.match(entry, '^%d+ %d+ [^ /+]*(/?)%+ ')
        if session(next) == asking or not marked or listens(channels, session(next), marked == '/', true) then
          return next, alive, now, entry, i
        end
        passed = passed or { next, alive, now, entry, i }
      end
      i = i + 1
    end
  end
  if passed and not from then
    return unpack(passed)
  end
end

-- tell sends the words to the session of a waiter with this entry, unless that session is asking.
local function tell(asking, channels, to, entry, ...)
  if session(to) ~= asking then
    local sharded = string.find(entry, '^%d+ %d+ [^ /+]*/')
    -- Not every user may use SPUBLISH, and a server that was put in for another may not have it.
    redis[sharded and 'pcall' or 'call'](sharded and 'SPUBLISH' or 'PUBLISH', channel(channels, session(to), sharded), table.concat({ to, ... }, ' '))
  end
end

-- FIRST is the longest lease of a lock that is handed over, in milliseconds: the new holder, which may be a process that was
-- stopped, shows that it lives by renewing it.
local FIRST = 2000

-- prolong sets the lease of a holder: ms from now. On a server that is full, that takes a write before it that needs no memory.
local function prolong(owner, ms, now, keep)
  redis.call('ZADD', KEYS[1], stamp(now + ms * 1000), owner)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], 2 * ms)
    redis.call('PEXPIRE', KEYS[6], 2 * ms)
  end
  outlive(ms + keep, keep)
end

-- allot gives n permits to an attempt, and returns its token. One that takes all has a block of tokens for its own.
local function allot(owner, n, about, lease, now, keep, limit)
  local token = math.max(now, whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) + 1)
  redis.call('HSET', KEYS[2], 't', stamp(n == ALL and token + BLOCK - 1 or token), 'n', stamp(limit))
  redis.call('HSET', KEYS[6], owner, n .. ' ' .. stamp(token) .. ' ' .. about, 'u', stamp(used() + n))
  prolong(owner, lease, now, keep)
  return stamp(token)
end

-- serve gives permits to those that wait, in their order, as long as there are enough for the next one. One that wants more than there are at all
-- waits, and holds up no other. Each gets the lease that it asks for, but not for longer than FIRST or than it is known to live, and its session is told. To that of
-- asking, the reply tells: 'OWNER TOKEN LEASE' each, which serve returns. The next one that cannot be served yet is told when the first lease
-- ends, or no session would look if a process that was handed permits is gone.
local function serve(asking, channels, now, keep, limit)
  local reply, from, free, handed = '', nil, limit - used(), false
  while true do
    local owner, alive, _, its, at = listener(asking, channels, now, from)
    if not owner then
      return reply
    end
    local n, lease, nonce, about = string.match(its, '^(%d+) (%d+) (%S*) (.*)')
    n = tonumber(n)
    if not n then
      leave(owner) -- it was changed by hand: it asks again
    elseif n > limit then
      from = at + 1
    elseif n > free then
      if handed then
        tell('', channels, owner, its, stamp(FIRST))
      end
      return reply
    else
      lease = math.min(tonumber(lease), math.ceil((alive - now) / 1000) + 1, FIRST)
      local token = allot(owner, n, about, lease, now, keep, limit)
      free, handed = free - n, true
      leave(owner)
      tell(asking, channels, owner, its, token, stamp(now), stamp(lease), string.match(nonce, '^[^/+]*'))
      if session(owner) == asking then
        reply = reply .. ' ' .. owner .. ' ' .. token .. ' ' .. stamp(lease)
      end
    end
  end
end

local served = serve(session(owner), ARGV[3], now, keep, limit)

-- settle forgets those that hold nothing any more: an attempt whose lease was over may have been given permits again since.
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

settle(over)
return 'R ' .. stamped .. served

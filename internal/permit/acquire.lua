-- Takes permits if enough are free and there are no waiters; else stands in the queue, once: asking again keeps the place.
--
-- KEYS    internal/permit/lua/permit.lua
-- ARGV[1] owner field: session and attempt
-- ARGV[2] how many permits; ALL excludes all others
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] lease in milliseconds
-- ARGV[5] what the session says of itself
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] liveness in milliseconds: for how long the attempt is known to live; 0 does not stand in the queue
-- ARGV[8] what the names of the sessions' channels begin with
-- ARGV[9] nonce: comes back in the message of a grant, which no other client can forge then
-- ARGV[10] how the session is told
-- ARGV[11] how many permits there are, unless Redis has another number
-- ARGV[12] a holder of this session, that is to go on instead if there are no waiters; or ''
--
-- Reply, with the Redis time NOW in microseconds, and behind it 'OWNER TOKEN LEASE' of each other attempt of this session that was served:
--   'G NOW TOKEN'                      granted, now or by an earlier copy of this request
--   'K NOW'                            ARGV[12] goes on, with the lease of ARGV[4]
--   'Q NOW LEFT HOLDER TOKEN', ABOUT in a second line: not yet, or not at all without a liveness. HOLDER is one of those that have permits ('-'
--                                      if none has), whose session says ABOUT of itself. The first lease ends in LEFT
--                                      milliseconds (-1: there is none, or another session is next and looks then). 'QD': this server knows of nobody that
--                                      listens for the asking session
--   'V NOW'                            expired: came too late
--   'S NOW'                            stale: this attempt is over already
--
-- Generated from internal/permit/lua/acquire.lua: edit that, and run go generate ./...

-- BLOCK is how many tokens a grant reserves: Block in scripts.go.
local BLOCK = 1000

-- allotAtOnce is the common case of acquire.lua: there are no waiters, no lease is over, and enough permits are free. It does what expire and allot would
-- do; anything else is left to them. The parameters are ARGV[1] to [6], [11] and [12] of acquire.lua, and BLOCK, which is cheaper as a parameter. Returns the reply,
-- if it is decided, and the Redis time in microseconds as a number and as text.
local function allotAtOnce(owner, n, deadline, lease, about, keep, limit, joins, block)
  local call = redis.call -- looked up once, which saves time
  local time = call('TIME')
  local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2]) -- the first is faster
  local now = tonumber(stamped)
  if now > tonumber(deadline) then
    return 'V ' .. stamped
  end
  local known = call('HMGET', KEYS[2], 'n', 't', 'q', owner)
  limit = known[1] or limit
  if joins ~= '' or known[4] or not string.find(limit, '^%d+$') or now <= (tonumber(known[2] or 0) or now)
      or (known[3] or not known[2]) and call('PTTL', KEYS[3]) ~= -2 then -- a queue has left a ticket in the metadata
    return nil, now, stamped
  end
  local lasts, inUse = call('PTTL', KEYS[1]), nil
  if lasts == -2 then
    inUse = call('PTTL', KEYS[6]) == -2 and 0
  elseif #call('ZRANGEBYSCORE', KEYS[1], '-inf', stamped, 'LIMIT', 0, 1) == 0 then
    local held = call('HMGET', KEYS[6], 'u', owner)
    inUse = held[1] and not held[2] and string.find(held[1], '^%d+$') and tonumber(held[1])
  end
  if not inUse or inUse + n > tonumber(limit) then
    return nil, now, stamped
  end
  call('HSET', KEYS[2], 't', n == '1000000000' and string.format('%.0f', now + block - 1) or stamped, 'n', limit)
  call('HSET', KEYS[6], owner, n .. ' ' .. stamped .. ' ' .. about, 'u', string.format('%.0f', inUse + n))
  call('ZADD', KEYS[1], string.format('%.0f', now + lease * 1000), owner)
  if lasts < tonumber(lease) then
    call('PEXPIRE', KEYS[1], 2 * lease)
    call('PEXPIRE', KEYS[6], 2 * lease)
  end
  if call('PTTL', KEYS[2]) < lease + keep then
    call('PEXPIRE', KEYS[2], lease + 2 * keep)
  end
  return 'G ' .. stamped .. ' ' .. stamped
end

local reply, now, stamped = allotAtOnce(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[11], ARGV[12], BLOCK)
if reply then
  return reply
end
local asking, n, lease, keep, liveness = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[7])
local queue = redis.call('PTTL', KEYS[3]) ~= -2

local function stamp(number)
  return string.format('%.0f', number)
end

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- prolong sets the lease of a holder: ms from now. On a server that is full, that takes a write before it that needs no memory.
local function prolong(owner, ms, now, keep)
  redis.call('ZADD', KEYS[1], stamp(now + ms * 1000), owner)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], 2 * ms)
    redis.call('PEXPIRE', KEYS[6], 2 * ms)
  end
  outlive(ms + keep, keep)
end

if ARGV[12] ~= '' and not queue then
  local till = redis.call('ZSCORE', KEYS[1], ARGV[12])
  if till and tonumber(till) > now then
    prolong(ARGV[12], math.max(lease, math.ceil((till - now) / 1000)), now, keep)
    return 'K ' .. stamped
  end
end
local till = redis.call('ZSCORE', KEYS[1], asking)

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

if till and tonumber(till) > now then
  local _, token = holding(asking)
  if token then
    prolong(asking, math.max(lease, math.ceil((till - now) / 1000)), now, keep)
    return 'G ' .. stamped .. ' ' .. token
  end
end
local known = redis.call('HMGET', KEYS[2], 'n', asking)
if known[2] then
  return 'S ' .. stamped
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

local limit = known[1] and whole(KEYS[2], 'n', known[1]) or tonumber(ARGV[11])

-- BATCH bounds how many leases that are over one request clears away. The rest count as in use until the next one.
local BATCH = 1000

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

-- ALL is how many permits one takes that excludes all others: All of permit.go.
local ALL = 1000000000

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

-- allot gives n permits to an attempt, and returns its token. One that takes all has a block of tokens for its own.
local function allot(owner, n, about, lease, now, keep, limit)
  local token = math.max(now, whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) + 1)
  redis.call('HSET', KEYS[2], 't', stamp(n == ALL and token + BLOCK - 1 or token), 'n', stamp(limit))
  redis.call('HSET', KEYS[6], owner, n .. ' ' .. stamp(token) .. ' ' .. about, 'u', stamp(used() + n))
  prolong(owner, lease, now, keep)
  return stamp(token)
end

if not queue and n <= limit - used() then
  local token = allot(asking, n, ARGV[5], lease, now, keep, limit)
  settle(over)
  return 'G ' .. stamped .. ' ' .. token
end

-- subscribed: this server has clients that listen to a channel. unknown is what it says without the right to ask.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
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

-- marks are those behind the nonce in the entry of a session that is told so. before are those of now.
local function marks(channels, of, told, before)
  local sharded = told == '2'
  local seen = before and sharded == (string.find(before, '/', 1, true) ~= nil) and string.find(before, '+', 1, true)
  if not seen then
    seen = told ~= '0' and listens(channels, of, sharded, false)
  end
  return (sharded and '/' or '') .. (seen and '+' or '')
end

-- lives notes that an attempt waits for at least liveness more.
local function lives(liveness, keep)
  if redis.call('PTTL', KEYS[3]) < liveness then
    redis.call('PEXPIRE', KEYS[3], 2 * liveness)
    redis.call('PEXPIRE', KEYS[4], 2 * liveness)
    redis.call('PEXPIRE', KEYS[5], 2 * liveness)
  end
  outlive(2 * liveness + keep, keep)
end

if liveness > 0 then
  local ticket = stamp(math.max((sound(redis.call('HGET', KEYS[2], 'q') or '') or 0) + 1, now))
  local before
  if redis.call('ZADD', KEYS[3], 'NX', ticket, asking) == 1 then
    redis.call('HSET', KEYS[2], 'q', ticket, 'n', stamp(limit))
  else
    before = string.match(redis.call('HGET', KEYS[5], asking) or '', '^%d+ %d+ [^ /+]*([/+]*) ')
  end
  redis.call('HSET', KEYS[5], asking, table.concat({ stamp(n), stamp(lease), ARGV[9] .. marks(ARGV[8], session(asking), ARGV[10], before), ARGV[5] }, ' '))
  redis.call('ZADD', KEYS[4], stamp(now + liveness * 1000), asking)
  lives(liveness, keep)
end

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

-- leave takes attempts out of the queue.
local function leave(...)
  redis.call('ZREM', KEYS[3], ...)
  redis.call('ZREM', KEYS[4], ...)
  redis.call('HDEL', KEYS[5], ...)
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

local served = serve(session(asking), ARGV[8], now, keep, limit)
settle(over)
local _, token = holding(asking)
if token then
  prolong(asking, lease, now, keep)
  served = string.gsub(served, ' ' .. string.gsub(asking, '%-', '%%-') .. ' %d+ %d+', '')
  return 'G ' .. stamped .. ' ' .. token .. served
end
local left, first = '-1', redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local about = ''
_, token, about = holding(first[1] or '')

-- behind: another session is next in the queue, so it is the one that looks when the holder's lease is over.
local function behind(asking, channels, now)
  local next = listener(asking, channels, now)
  return next and session(next) ~= asking
end

if first[1] and not (liveness > 0 and behind(session(asking), ARGV[8], now)) then
  left = stamp(math.max(0, math.ceil((first[2] - now) / 1000)))
end

-- deaf: this server knows of nobody that listens for a session which is told here.
local function deaf(channels, of, told)
  return told ~= '0' and not listens(channels, of, told == '2', true)
end

local status = liveness > 0 and deaf(ARGV[8], session(asking), ARGV[10]) and 'QD' or 'Q'
return table.concat({ status, stamped, left, first[1] or '-', token or '0' }, ' ') .. served .. '\n' .. (about or '')

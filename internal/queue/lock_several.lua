-- Takes several locks that have no waiters, all or none.
--
-- KEYS    five for each lock, as in lock.lua
-- ARGV    as in lock.lua, which is one() here, the same for all; ARGV[1] is the owner field, ARGV[3] the Redis
--         time in microseconds after which this request has expired. ARGV[6] is 0: the queue of no lock is stood in
--
-- Reply: 'G NOW TOKEN...', or the number of a lock that cannot be had and behind it what
-- one() says of that
--
-- Generated from internal/queue/lua/lock_several.lua: edit that, and run go generate ./...

-- several empties KEYS, and returns what was in it: five keys for each lock.
local function several()
  local keys = {}
  for i = #KEYS, 1, -1 do
    keys[i], KEYS[i] = KEYS[i], nil
  end
  return keys
end

local keys = several()

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

-- subscribed: this server has clients that listen to a channel. unknown is what it says without the right to ask.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
end

-- bad ends the script with an error that Refusal of refusal.go reads. Nothing may have been written before.
local function bad(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c) return string.format('=%02X', string.byte(c)) end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) .. ',' .. plain(why) .. ' .', 0)
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

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- holder returns owner, token and what the owner's session says of itself; nil
-- if the lock is free. What cannot be a grant of ours is an error, unless any will do.
local function holder(any)
  local held = redis.call('HGETALL', KEYS[1])
  local about, owner, other, count, token = ''
  for i = 1, #held, 2 do
    local field, value = held[i], held[i + 1]
    if field == 't' then
      token = value
    elseif field == 'd' then
      about = value
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
  return owner, token or '0', about
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

-- grant makes an attempt the owner of a block of tokens above last, and returns the
-- first. lost is the last token lost, if the lock was. wanted: others may wait for it.
local function grant(owner, about, lease, now, keep, last, lost, wanted)
  local token = stamp(math.max(now, last + 1))
  if wanted then
    redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about, 'w', '1')
  else
    redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  end
  redis.call('PEXPIRE', KEYS[1], lease)
  if lost then
    redis.call('HSET', KEYS[2], 't', token, 'l', stamp(lost))
  else
    redis.call('HSET', KEYS[2], 't', token)
  end
  outlive(lease + keep, keep)
  return token
end

-- take is the common case of a lock script: the lock is free, it has no waiters, and what was granted before was released. It does what
-- past and grant would do; anything else is left to them. The parameters are ARGV[1] to [5] of a lock script. Returns the reply,
-- if it is decided, and the Redis time in microseconds as a number and as text.
local function take(owner, lease, deadline, about, keep)
  local call = redis.call -- looked up once, which saves time
  local time = call('TIME')
  local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2]) -- the first is faster
  local now = tonumber(stamped)
  if now > tonumber(deadline) then
    return 'V ' .. stamped
  end
  if call('HLEN', KEYS[1]) == 0 then
    local metadata = call('HMGET', KEYS[2], 't', 'r', 'a', owner, 'q')
    if metadata[1] == metadata[2] and now > (tonumber(metadata[1] or 0) or now) and metadata[3] ~= owner and not metadata[4]
        and (metadata[1] and not metadata[5] or call('PTTL', KEYS[3]) == -2) then -- a queue has left a ticket in the metadata
      call('HSET', KEYS[1], owner, '1', 't', stamped, 's', '0', 'd', about)
      call('PEXPIRE', KEYS[1], lease)
      call('HSET', KEYS[2], 't', stamped)
      if call('PTTL', KEYS[2]) < lease + keep then
        call('PEXPIRE', KEYS[2], lease + 2 * keep)
      end
      return 'G ' .. stamped .. ' ' .. stamped
    end
  end
  return nil, now, stamped
end

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], ms)
    outlive(ms + keep, keep)
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

-- marks are those behind the nonce in the entry of a session that is told so. before are those of now.
local function marks(channels, of, told, before)
  local sharded = told == '2'
  local seen = before and sharded == (string.find(before, '/', 1, true) ~= nil) and string.find(before, '+', 1, true)
  if not seen then
    seen = told ~= '0' and listens(channels, of, sharded, false)
  end
  return (sharded and '/' or '') .. (seen and '+' or '')
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

-- lives notes that an attempt waits for at least liveness more.
local function lives(liveness, keep)
  if redis.call('PTTL', KEYS[3]) < liveness then
    redis.call('PEXPIRE', KEYS[3], 2 * liveness)
    redis.call('PEXPIRE', KEYS[4], 2 * liveness)
    redis.call('PEXPIRE', KEYS[5], 2 * liveness)
  end
  outlive(2 * liveness + keep, keep)
end

-- behind: another session is next in the queue, so it is the one that looks when the holder's lease is over.
local function behind(asking, channels, now)
  local next = listener(asking, channels, now)
  return next and session(next) ~= asking
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

-- handOver gives a free lock to the first waiter that listens, for the lease that it asks for, but not for longer than
-- FIRST or than it is known to live, and tells its session unless that is the one that asks, which the reply
-- tells. The next in the queue is told when that lease is over. last and lost are what past says. Returns owner, token, what the owner's
-- session says of itself, and the lease in milliseconds, or nothing.
local function handOver(asking, channels, now, keep, last, lost)
  local owner, alive, entry, at
  owner, alive, now, entry, at = listener(asking, channels, now)
  if not owner then
    return
  end
  local lease, nonce, about = string.match(entry, '^%d+ (%d+) (%S*) (.*)')
  lease = math.min(tonumber(lease or 9e15), math.ceil((alive - now) / 1000) + 1, FIRST)
  local next, _, _, its = listener('', channels, now, at + 1) -- now: while a slot moves, a queue that is empty may not be looked at
  local token = grant(owner, about or '', lease, now, keep, last, lost, true)
  leave(owner)
  if next then
    tell('', channels, next, its, stamp(lease)) -- without its nonce, which any subscriber would know then
  end
  tell(asking, channels, owner, entry, token, stamp(now), stamp(lease), string.match(nonce or '', '^[^/+]*')) -- last: Redis writes that first
  return owner, token, about or '', stamp(lease)
end

-- turn makes KEYS those of the i-th lock.
local function turn(keys, i)
  for k = 1, 5 do
    KEYS[k] = keys[5 * (i - 1) + k]
  end
end

local function one()
  local reply, now, stamped = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
  if reply then
    return reply
  end
  local asking = ARGV[1]
  local lease, liveness, keep = tonumber(ARGV[2]), tonumber(ARGV[6]), tonumber(ARGV[5])
  local owner, token, about = holder()
  if owner == asking then
    renew(lease, keep)
    return 'G ' .. stamped .. ' ' .. token
  end
  local last, lost, over = past(asking)
  if over then
    return 'S ' .. stamped
  end
  if not owner then
    local next = listener(session(asking), ARGV[7], now)
    if not next or next == asking then
      if next then
        leave(asking)
      end
      token = grant(asking, ARGV[4], lease, now, keep, last, lost, redis.call('PTTL', KEYS[3]) ~= -2)
      return 'G ' .. stamped .. ' ' .. token
    end
    owner, token, about = handOver(session(asking), ARGV[7], now, keep, last, lost)
  end
  local status = 'H '
  if liveness > 0 then
    local last = ARGV[9] == '' and {} or redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
    local joins = last[1] == ARGV[9]
    local ticket = joins and last[2] or stamp(math.max((sound(redis.call('HGET', KEYS[2], 'q') or '') or 0) + 1, now))
    if redis.call('ZADD', KEYS[3], 'NX', ticket, asking) == 1 then
      local nonce = ARGV[11] .. marks(ARGV[7], session(asking), ARGV[12])
      if not joins then
        redis.call('HSET', KEYS[2], 'q', ticket)
        redis.call('HSET', KEYS[1], 'w', '1')
      end
      redis.call('HSET', KEYS[5], asking, table.concat({ ARGV[8] + (joins and ARGV[10] or 0), ARGV[2], nonce, ARGV[4] }, ' '))
    else
      joins = false -- an earlier copy stands already, before the last one
    end
    redis.call('ZADD', KEYS[4], stamp(now + liveness * 1000), asking)
    if joins then
      leave(ARGV[9])
      status = 'J '
    end
    lives(liveness, keep)
    if not joins and behind(session(asking), ARGV[7], now) then
      status = 'W '
    end
  end
  return status .. stamped .. ' ' .. stamp(redis.call('PTTL', KEYS[1])) .. ' ' .. owner .. ' ' .. token .. ' ' .. about
end

for i = 1, #keys / 5 do
  turn(keys, i)
  local owner = holder()
  local _, _, over = past(ARGV[1])
  local now = clock()
  if now > tonumber(ARGV[3]) or owner ~= ARGV[1] and (owner or over or listener(session(ARGV[1]), ARGV[7], now)) then
    return i .. ' ' .. one()
  end
end
ARGV[3] = '9000000000000000' -- all of them now, or none. Embedded servers read no 9e15
local reply
for i = 1, #keys / 5 do
  turn(keys, i)
  local granted = one()
  reply = reply and reply .. string.match(granted, ' %d+$') or granted
end
return reply

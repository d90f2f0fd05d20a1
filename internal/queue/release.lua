-- Ends an attempt: it leaves the queue, and if it holds the lock, or the lock is free by now, the first living
-- waiter holds it next.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- KEYS[3], KEYS[4], KEYS[5] the queue: internal/inbox/lua/line.lua. While a slot moves, a Cluster refuses requests for keys
--         of which some exist, and a queue often does not: without these, a lock without waiters can be released
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds for which the metadata of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
-- ARGV[6] last token used of the grant's block; 0 where none was, '' where that is
--         not known
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN LEASE' behind it: handed over to that one, for LEASE milliseconds
--
-- Generated from internal/queue/lua/release.lua: edit that, and run go generate ./...

if not KEYS[3] then
  local held = redis.call('HMGET', KEYS[1], ARGV[1], 'w')
  if not held[1] or held[2] then
    return redis.error_reply('TRYAGAIN the queue may be needed')
  end
end

-- BLOCK is how many tokens a grant reserves: Block in scripts.go.
local BLOCK = 1000

-- conclude begins a release: it ends what an attempt holds, whatever the token, because an attempt that ends needs nothing any more.
-- owner, token, keep and used are ARGV[1], [2], [4] and [6] of a release script; block is BLOCK, which is cheaper as a
-- parameter. Returns
--   the last token that counts as used; nil if nothing was ended. The rest of the block is given back
--   whether it was held under the token that was named, or any will do
--   what it is held under, if that is no token. Nothing was done then
--   whether others may wait. Then the lock's hash is left, or is to be deleted by the caller
local function conclude(owner, token, keep, used, block)
  local call = redis.call
  local held = call('HMGET', KEYS[1], owner, 't', 'w')
  if not held[1] then
    return nil
  end
  if token ~= held[2] and not (held[2] and string.find(held[2], '^%d+$') and tonumber(held[2]) <= 9e15) then
    return nil, nil, held[2] or ''
  end
  if held[3] then -- while a slot moves to another node, a script cannot make a key again
    call('HDEL', KEYS[1], owner)
  else
    call('DEL', KEYS[1])
  end
  local mine = token == held[2] or token == ''
  if used == '' or not mine or token == '' and used ~= '0' and tonumber(used) < held[2] + block - 1 then
    used = string.format('%.0f', held[2] + block - 1)
  elseif used == '0' then
    used = held[2]
  end
  -- Not possible while short of memory. What the grant kept alive need not be now, unless it was evicted.
  if redis.pcall('HSET', KEYS[2], 't', used, 'r', used, 'a', owner) == 3 and call('PTTL', KEYS[2]) < tonumber(keep) then
    call('PEXPIRE', KEYS[2], 2 * keep)
  end
  return used, mine, nil, held[3]
end

local used, mine, odd, waited = conclude(ARGV[1], ARGV[2], ARGV[4], ARGV[6], BLOCK)
local reply = used and mine and 'R' or 'L'
if used and not waited and ARGV[5] == '0' then
  return reply
end

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

if odd then
  whole(KEYS[1], 't', odd)
end

-- released: the token was granted once and released, by whomever since. Whatever
-- lies above the last token lost and not above the last one released was.
local function released(token)
  local metadata = redis.call('HMGET', KEYS[2], 'r', 'l')
  return metadata[1] and tonumber(token) <= whole(KEYS[2], 'r', metadata[1]) and tonumber(token) > whole(KEYS[2], 'l', metadata[2])
end

local over = not used and ARGV[2] ~= '' and released(ARGV[2])
local gone = not used and redis.call('HLEN', KEYS[1]) == 0 and redis.call('PTTL', KEYS[3]) ~= -2 -- its data were deleted, or its lease is over
local keep, last, lost = tonumber(ARGV[4]), nil, nil

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

if gone then
  last, lost = past('')
end
local next, token, lease, _

-- subscribed: this server has clients that listen to a channel. unknown is what it says without the right to ask.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
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

if not used then
  leave(ARGV[1])
  if over then
    reply = 'R'
  end
  if gone then
    next, token, _, lease = handOver(session(ARGV[1]), ARGV[3], nil, keep, last, lost)
  end
elseif waited then
  next, token, _, lease = handOver(session(ARGV[1]), ARGV[3], nil, keep, tonumber(used))
  if not next then
    redis.call('DEL', KEYS[1])
  end
end
if next then
  reply = table.concat({ reply, next, token, lease }, ' ')
end

-- tombstone notes that an attempt is over though a copy of its request may arrive
-- until the Redis time late, and forgets the tombstones whose time has passed, or is none.
local function tombstone(owner, late, keep)
  if late == '0' then
    return
  end
  local now, all = clock(), redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and (tonumber(all[i + 1]) or 0) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(late) >= now then
    redis.call('HSET', KEYS[2], owner, late)
    outlive(keep, keep)
  end
end

tombstone(ARGV[1], ARGV[5], keep)
return reply

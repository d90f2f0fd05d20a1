-- Takes a free lock that is shared with Redisson, once for each attempt. As the lock script of queue, but that its tokens also follow
-- Redisson's counter, so that there is no common case.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- KEYS[3] Redisson's token counter
-- ARGV[1] owner field: session and attempt
-- ARGV[2] lease in milliseconds
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] what the session says of itself
-- ARGV[5] milliseconds by which the metadata outlives the lease
-- ARGV[6] what KEYS[3] begins at; '': where it does not exist, it is not made
-- ARGV[7] channel
-- ARGV[8] how messages are published on it: see sharding in shared.lua
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW TOKEN'        granted, now or by an earlier copy of this request
--   'H NOW PTTL HOLDER TOKEN ABOUT'  held by another for PTTL milliseconds (-1: no
--                        expiry), whose session says ABOUT of itself
--   'P...'               the same, and a release is published by SPUBLISH
--   'V NOW'              expired: came too late
--   'S NOW'              stale: this attempt is over already
--
-- Generated from rlock/lua/redisson_lock.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
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

local owner, token, about = holder()

-- sharding reports whether messages on a channel are published by SPUBLISH, for clients that SSUBSCRIBE: never if how is
-- 'classic', always if it is 'sharded', and if it is 'auto', where the server can do both and the user may. A waiter and
-- the session that wakes it get the same answer, if their rights are the same.
local function sharding(how, channel)
  local function may(...) -- whole commands: Redis with the security updates of 2026 looks at the number of arguments, too
    local known, allowed = pcall(redis.acl_check_cmd, ...) -- older than Redis 7: not known, as the commands are not
    return known and allowed
  end
  return how == 'sharded' or how == 'auto' and may('SSUBSCRIBE', channel) and may('SPUBLISH', channel, '')
end

if owner and owner ~= ARGV[1] then
  return (sharding(ARGV[8], ARGV[7]) and 'P ' or 'H ') .. stamped .. ' ' .. stamp(redis.call('PTTL', KEYS[1])) .. ' ' .. owner .. ' ' .. token .. ' ' .. about
end
local lease, keep = tonumber(ARGV[2]), tonumber(ARGV[5])

-- BLOCK is how many tokens a grant reserves: Block in scripts.go.
local BLOCK = 1000

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
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

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], ms)
    outlive(ms + keep, keep)
  end
end

if owner then
  renew(lease, keep)
else
  local last, lost, over = past(ARGV[1])
  if over then
    return 'S ' .. stamped
  end
  local counter = redis.call('GET', KEYS[3]) or ARGV[6] ~= '' and ARGV[6]
  if counter then
    last = math.max(last, whole(KEYS[3], '', counter))
  end
  token = grant(ARGV[1], ARGV[4], lease, now, keep, last, lost)
  if counter then
    redis.call('SET', KEYS[3], stamp(tonumber(token) + BLOCK - 1))
  end
end
return 'G ' .. stamped .. ' ' .. token

-- Takes several locks, all or none.
--
-- KEYS    two for each lock: its hash and its metadata
-- ARGV    as in lock.lua, which is one() here, the same for all; ARGV[1] is the owner field, ARGV[3] the Redis
--         time in microseconds after which this request has expired
--
-- Reply: 'G NOW TOKEN...', or the number of a lock that cannot be had and behind it what
-- one() says of that
--
-- Generated from rlock/lua/lock_several.lua: edit that, and run go generate ./...

-- several empties KEYS, and returns what was in it: two keys for each lock.
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
    elseif field ~= 's' then
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
-- first. lost is the last token lost, if the lock was.
local function grant(owner, about, lease, now, keep, last, lost)
  local token = stamp(math.max(now, last + 1))
  redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', about)
  redis.call('PEXPIRE', KEYS[1], lease)
  if lost then
    redis.call('HSET', KEYS[2], 't', token, 'l', stamp(lost))
  else
    redis.call('HSET', KEYS[2], 't', token)
  end
  outlive(lease + keep, keep)
  return token
end

-- take is the common case of a lock script: the lock is free, and what was granted before was released. It does what
-- past and grant would do; anything else is left to them. free: the lock is free, nobody waits for it, and nothing
-- else hinders. The others are ARGV[1] to [5] of a lock script. Returns the reply, if it is decided, and the Redis time in
-- microseconds as a number and as text.
local function take(free, owner, lease, deadline, about, keep)
  local call = redis.call -- looked up once, which saves time
  local time = call('TIME')
  local now, stamped = time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
  if now > tonumber(deadline) then
    return 'V ' .. stamped
  end
  if free then
    local metadata = call('HMGET', KEYS[2], 't', 'r', 'a', owner)
    if metadata[1] == metadata[2] and now > (tonumber(metadata[1] or 0) or now) and metadata[3] ~= owner and not metadata[4] then
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

-- turn makes KEYS those of the i-th lock.
local function turn(keys, i)
  KEYS[1], KEYS[2] = keys[2 * i - 1], keys[2 * i]
end

local function one()
  local free = redis.call('HLEN', KEYS[1]) == 0
  local reply, now, stamped = take(free, ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
  if reply then
    return reply
  end
  local owner, token, about = holder()
  if owner and owner ~= ARGV[1] then
    return 'H ' .. stamped .. ' ' .. stamp(redis.call('PTTL', KEYS[1])) .. ' ' .. owner .. ' ' .. token .. ' ' .. about
  end
  local lease, keep = tonumber(ARGV[2]), tonumber(ARGV[5])
  if owner then
    renew(lease, keep)
  else
    local last, lost, over = past(ARGV[1])
    if over then
      return 'S ' .. stamped
    end
    token = grant(ARGV[1], ARGV[4], lease, now, keep, last, lost)
  end
  return 'G ' .. stamped .. ' ' .. token
end

for i = 1, #keys / 2 do
  turn(keys, i)
  local owner = holder()
  local _, _, over = past(ARGV[1])
  if clock() > tonumber(ARGV[3]) or owner ~= ARGV[1] and (owner or over) then
    return i .. ' ' .. one()
  end
end
ARGV[3] = '9e15' -- all of them now, or none
local reply
for i = 1, #keys / 2 do
  turn(keys, i)
  local granted = one()
  reply = reply and reply .. string.match(granted, ' %d+$') or granted
end
return reply

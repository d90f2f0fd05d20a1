-- Frees the lock from any holder, or only from the one whose token was seen. The holder learns that
-- it lost the lock.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] channel
-- ARGV[2] milliseconds by which the metadata outlives the lease
-- ARGV[3] how the message is published: see sharding in shared.lua
-- ARGV[4] the token that was seen, if the lock of no other holder is to be freed
--
-- Reply: 'R' it was held, 'F' it was free, 'O' another holder has it
--
-- Generated from rlock/lua/redisson_force.lua: edit that, and run go generate ./...

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

local owner, token = holder(true)
if not owner then
  return 'F'
end
if ARGV[4] and ARGV[4] ~= token then
  return 'O'
end
redis.call('DEL', KEYS[1])

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

-- disown notes that an attempt is over whose session does not know it: late copies of its request, which were sent before it was
-- granted, and expired before the metadata is forgotten, must not take the lock back.
local function disown(owner, keep)
  local now = clock()
  tombstone(owner, stamp(now + redis.call('PTTL', KEYS[2]) * 1000), keep)
end

disown(owner, tonumber(ARGV[2]))

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

-- publish sends a message, by SPUBLISH or PUBLISH, and returns how many clients of this server got it.
local function publish(how, channel, message)
  local heard = sharding(how, channel) and redis.pcall('SPUBLISH', channel, message)
  return type(heard) == 'number' and heard or redis.call('PUBLISH', channel, message)
end

publish(ARGV[3], ARGV[1], '0')
if sharding(ARGV[3], ARGV[1]) then -- this is rare, and the caller may be told another mode than those that wait
  redis.call('PUBLISH', ARGV[1], '0')
end
return 'R'

-- Sets what a held lock looks like now: its hold count, and a lease that is no
-- shorter than asked. Serves re-entry, the unlock of a nested hold, renewal and
-- Extend. It sets and never adds, so a copy that comes twice or late changes nothing.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] token of the grant that this is about
-- ARGV[3] number of this change within the grant; an older one is ignored
-- ARGV[4] hold count
-- ARGV[5] lease in milliseconds; 0 leaves it as it is
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] channel on which waiters are woken if the lock is free; ''
--         where none is: they look by themselves
-- ARGV[8] message
-- ARGV[9] how it is published: see sharding in shared.lua; '' by PUBLISH
-- ARGV[10] a token that no later grant may have, nor one below; or none
--
-- Reply: 'K' kept, 'L' lost: the lock is not held under this token.
--
-- Generated from internal/protocol/lua/keep.lua: edit that, and run go generate ./...

local held = redis.call('HMGET', KEYS[1], 't', 's', ARGV[1])

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

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], ms)
    outlive(ms + keep, keep)
  end
end

if held[1] == ARGV[2] and held[3] then
  local change, lease = sound(held[2] or ''), tonumber(ARGV[5])
  local low = ARGV[10] and whole(KEYS[2], 't', redis.call('HGET', KEYS[2], 't')) < tonumber(ARGV[10])
  if lease > 0 then
    renew(lease, tonumber(ARGV[6]))
  end
  if low then
    redis.call('HSET', KEYS[2], 't', ARGV[10])
    outlive(redis.call('PTTL', KEYS[1]) + tonumber(ARGV[6]), tonumber(ARGV[6]))
  end
  if not change or tonumber(ARGV[3]) > change then
    -- The lease comes first: a server short of memory refuses this, and takes it the next time.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4], 's', ARGV[3])
  end
  return 'K'
end

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

if ARGV[7] ~= '' and redis.call('HLEN', KEYS[1]) == 0 then
  publish(ARGV[9], ARGV[7], ARGV[8]) -- its data were deleted, and nothing else would tell
end
return 'L'

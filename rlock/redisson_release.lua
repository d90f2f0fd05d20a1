-- Frees a lock that is shared with Redisson, as release.lua, and gives back tokens of Redisson's counter, too.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- KEYS[3] Redisson's token counter
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] channel
-- ARGV[4] milliseconds for which the metadata of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
-- ARGV[6] last token used of the grant's block; 0 where none was, '' where that is
--         not known
-- ARGV[7] how the message is published: see sharding in shared.lua
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' HEARD' behind it: a lock was freed, and that many clients of
--        this server were told. If its data are gone, they are told, too
--
-- Generated from rlock/lua/redisson_release.lua: edit that, and run go generate ./...

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

local used, mine, odd = conclude(ARGV[1], ARGV[2], ARGV[4], ARGV[6], BLOCK)
local reply = 'L'

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

if used then
  redis.call('SET', KEYS[3], used, 'XX') -- Redisson raises it only while it holds
  local heard = publish(ARGV[7], ARGV[3], '0') -- the message is Redisson's own
  reply = (mine and 'R ' or 'L ') .. heard
  if ARGV[5] == '0' then
    return reply
  end
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

if not used and ARGV[2] ~= '' then
  if released(ARGV[2]) then
    reply = 'R'
  elseif redis.call('HLEN', KEYS[1]) == 0 then -- its data were deleted, and nothing else would tell
    publish(ARGV[7], ARGV[3], '0')
  end
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

tombstone(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply

-- The second round, where a server refused the first token: a higher one, which is
-- accepted only from the holder of the lock here.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] the proposed token, higher than the attempt's first one
-- ARGV[3] how many tokens the attempt reserves
--
-- Reply: 'A' accepted, now or by an earlier copy of this request
--        'L' not held, or not above what is stored
--
-- Generated from multilock/lua/redlock_accept.lua: edit that, and run go generate ./...

local metadata = redis.call('HMGET', KEYS[2], 't', 'b')

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

local stored, last = whole(KEYS[2], 't', metadata[1]), ARGV[2] + ARGV[3] - 1
if not redis.call('HGET', KEYS[1], ARGV[1]) then
  return 'L'
end
if metadata[2] ~= ARGV[1] and tonumber(ARGV[2]) <= stored then -- its own block is not in its way
  return 'L'
end
if last > stored then
  redis.call('HSET', KEYS[2], 't', stamp(last), 'b', ARGV[1])
end
return 'A'

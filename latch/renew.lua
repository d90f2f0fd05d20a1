-- Renews the lease of a party. A lease that has ended stays so: waiters may have been told.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the party
-- ARGV[2] name of the party
-- ARGV[3] lease in milliseconds
--
-- Reply: 'K' kept, 'L' it has none
--
-- Generated from latch/lua/renew.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now = clock()

-- bad ends the script with an error that Refusal of refusal.go reads. Nothing may have been written before.
local function bad(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c) return string.format('=%02X', string.byte(c)) end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) .. ',' .. plain(why) .. ' .', 0)
end

-- leased is until when a party has its lease, and the id by which it has joined; nil if it has none.
local function leased(party)
  local value = redis.call('HGET', KEYS[1], 'p:' .. party)
  if value then
    local till, id = string.match(value, '^(%d+) (.*)$')
    if not till then
      bad(KEYS[1], 'p:' .. party, value, 'not a time and an id')
    end
    return tonumber(till), id
  end
end

local till, id = leased(ARGV[2])
if id ~= ARGV[1] or till <= now then
  return 'L'
end

local function stamp(number)
  return string.format('%.0f', number)
end

redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], stamp(now + ARGV[3] * 1000) .. ' ' .. id)

-- MOST is the highest token that is taken from a key: numbers are exact up to 2^53, and it must leave room to add to.
local MOST = 9e15

-- sound is a value as a number; nil if it is not a whole one from 0 to most. Of what Lockline wrote, all are.
local function sound(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MOST) and number or nil
end

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

-- live keeps the key of a run that is under way for its lifetime.
local function live(lifetime)
  redis.call('PEXPIRE', KEYS[1], math.max(ENDED, sound(lifetime or '', 1e13) or 0))
end

live(redis.call('HGET', KEYS[1], 'k'))
return 'K'

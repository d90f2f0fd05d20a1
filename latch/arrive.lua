-- Counts what was leased to a party, once.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the party
-- ARGV[2] name of the party
-- ARGV[3] id of the run that it has joined
-- ARGV[4] channel
--
-- Reply: 'C NOW' counted, now or before; 'P NOW' its lease has ended; if the run is over, 'Z NOW', 'D NOW' or 'G NOW' as of look.lua
--
-- Generated from latch/lua/arrive.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q')
if run[2] ~= ARGV[3] then
  local ended = redis.call('HGET', KEYS[1], 'e:' .. ARGV[3])
  return (ended and string.match(ended, '^%d+ ([ZD])$') or 'G') .. ' ' .. stamped
end
if redis.call('HGET', KEYS[1], 'c:' .. ARGV[1]) then
  return 'C ' .. stamped
end

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
  return 'P ' .. stamped
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

local n, parties = whole(KEYS[1], 'n', run[1]), whole(KEYS[1], 'q', run[4])
redis.call('HSET', KEYS[1], 'c:' .. ARGV[1], '1', 'q', stamp(math.max(parties - 1, 0)))
redis.call('HDEL', KEYS[1], 'p:' .. ARGV[2])

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

-- live keeps the key of a run that is under way for its lifetime.
local function live(lifetime)
  redis.call('PEXPIRE', KEYS[1], math.max(ENDED, sound(lifetime or '', 1e13) or 0))
end

-- finish ends a run, and wakes all that wait for it. The first write is one that a full server refuses: nothing is changed then.
local function finish(run, how, now, channel)
  redis.call('HSET', KEYS[1], 'e:' .. run, stamp(now + ENDED * 1000) .. ' ' .. how)
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^[pc]:') then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  redis.call('HDEL', KEYS[1], 'n', 'r', 'k', 'q')
  redis.call('PEXPIRE', KEYS[1], ENDED)
  redis.call('PUBLISH', channel, how .. ' ' .. run)
end

-- less is the count of a run, made one less; at 0, the run ends.
local function less(n, run, lifetime, now, channel)
  if n > 1 then
    redis.call('HSET', KEYS[1], 'n', stamp(n - 1))
    live(lifetime)
    return stamp(n - 1)
  end
  finish(run, 'Z', now, channel)
  return '0'
end

less(n, run[2], run[3], now, ARGV[4])
return 'C ' .. stamped

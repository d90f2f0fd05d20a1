-- Tells of the run that is under way, and of its parties. It changes nothing, not even how long the latch lives.
--
-- KEYS[1] the latch's hash: lua/latch.lua
--
-- Reply: 'I NOW' no run is under way, or 'I NOW COUNT', and for each party that has joined and not counted
--        ' LEFT ID LENGTH NAME': what is left of its lease in milliseconds, 0 if it is over; the id by which it has joined; its
--        name, of so many bytes
--
-- Generated from latch/lua/inspect.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local all = redis.call('HGETALL', KEYS[1])
local count
local parts = {}

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

for i = 1, #all, 2 do
  local name = string.match(all[i], '^p:(.*)$')
  local till, id = string.match(all[i + 1], '^(%d+) (%S+)$')
  if all[i] == 'n' then
    count = whole(KEYS[1], 'n', all[i + 1])
  elseif name and till then
    parts[#parts + 1] = ' ' .. stamp(math.max(math.ceil((till - now) / 1000), 0)) .. ' ' .. id .. ' ' .. #name .. ' ' .. name
  end
end
if not count then
  return 'I ' .. stamped
end
return 'I ' .. stamped .. ' ' .. stamp(count) .. table.concat(parts)

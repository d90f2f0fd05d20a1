-- Tells how a run stands, and keeps a run that is under way for its lifetime.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the run; '' the one that is under way
-- ARGV[2] the session's channel; '' where other servers know of listeners, too
--
-- Reply: 'R NOW RUN COUNT LEFT LIFETIME' it is under way. In LEFT milliseconds the next lease of a party ends; -1: none has one.
--        A ' D' behind it: this server knows of nobody that listens to ARGV[2]
--        'P NOW RUN COUNT PARTY' it is under way, and the lease of this party has ended
--        'Z NOW' it ended at 0, or none is under way, 'D NOW' it was deleted
--        'G NOW' nothing is known of it
--
-- Generated from latch/lua/look.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q')
if ARGV[1] ~= '' and run[2] ~= ARGV[1] then
  local ended = redis.call('HGET', KEYS[1], 'e:' .. ARGV[1])
  return (ended and string.match(ended, '^%d+ ([ZD])$') or 'G') .. ' ' .. stamped
end
if not run[1] then
  return 'Z ' .. stamped
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

local n = whole(KEYS[1], 'n', run[1])

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

redis.pcall('PEXPIRE', KEYS[1], math.max(ENDED, sound(run[3] or '', 1e13) or 0)) -- a server that cannot write can be read
local first, party
if run[4] ~= '0' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local till = string.find(all[i], '^p:') and tonumber(string.match(all[i + 1], '^%d+'))
    if till and (not first or till < first) then
      first, party = till, string.sub(all[i], 3)
    end
  end
end
local about = stamped .. ' ' .. (run[2] or '') .. ' ' .. stamp(n) .. ' '
if first and first <= now then
  return 'P ' .. about .. party
end

-- subscribed: this server has clients that listen to a channel. unknown is what it says without the right to ask.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
end

local deaf = ARGV[2] ~= '' and not subscribed(ARGV[2], false, true) and ' D' or ''
return 'R ' .. about .. (first and stamp(math.ceil((first - now) / 1000)) or '-1') .. ' ' .. (run[3] or '') .. deaf

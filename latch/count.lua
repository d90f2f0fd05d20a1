-- Counts down by one.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
--
-- Reply: 'C NOW RUN COUNT' counted; 'C NOW' no run is under way, so there was nothing to do; 'V NOW' or 'U NOW' as of set.lua
--
-- Generated from latch/lua/count.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local deadline = tonumber(ARGV[2])

-- MEMORY is for how many microseconds after its deadline a request is remembered. A copy that comes within that time knows
-- whether an earlier one ran.
local MEMORY = 30000000

-- answer puts the Redis time into a reply.
local function answer(reply, stamped)
  return string.sub(reply, 1, 1) .. ' ' .. stamped .. string.sub(reply, 2)
end

-- known is the reply to a request of which a copy ran before, or which comes too late. nil: it is to run now.
local function known(id, deadline, now, stamped)
  local memory = redis.call('HGET', KEYS[1], 'i:' .. id)
  if memory then
    return answer(string.match(memory, '^%d+ (.+)$') or '?', stamped)
  end
  if now > deadline then
    return ((deadline == 0 or now <= deadline + MEMORY) and 'V ' or 'U ') .. stamped
  end
end

local before = known(ARGV[1], deadline, now, stamped)
if before then
  return before
end
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k')

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
local reply = 'C'
if run[1] then
  reply = 'C ' .. (run[2] or '') .. ' ' .. stamp(math.max(n - 1, 0))
end

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

-- last keeps what is remembered for long enough. While a run is under way, that keeps the key.
local function last()
  if redis.call('PTTL', KEYS[1]) < ENDED then
    redis.call('PEXPIRE', KEYS[1], ENDED)
  end
end

-- remember notes a reply to the request id, until its memory ends.
local function remember(id, deadline, reply)
  redis.call('HSET', KEYS[1], 'i:' .. id, stamp(deadline + MEMORY) .. ' ' .. reply)
  last()
end

remember(ARGV[1], deadline, reply)

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

if run[1] then
  less(n, run[2] or '', run[3], now, ARGV[3])
end

-- tidy forgets what is over. Not each time: it looks at all fields.
local function tidy(now)
  local due = redis.call('HGET', KEYS[1], 'w')
  if due and (tonumber(due) or 0) > now then
    return
  end
  redis.call('HSET', KEYS[1], 'w', stamp(now + MEMORY))
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^[ie]:') and (tonumber(string.match(all[i + 1], '^%d+')) or 0) < now then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
end

tidy(now)
return answer(reply, stamped)

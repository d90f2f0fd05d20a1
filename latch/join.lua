-- Leases one count of the run that is under way to a party.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request, and of the party
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
-- ARGV[4] name of the party
-- ARGV[5] lease in milliseconds
--
-- Reply: 'J NOW RUN' joined, 'T NOW' another one has joined by this name, 'F NOW' there is no count to lease,
--        'X NOW' it has joined, and that is over; 'V NOW' or 'U NOW' as of set.lua
--
-- Generated from latch/lua/join.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()
local deadline = tonumber(ARGV[2])
local run = redis.call('HMGET', KEYS[1], 'n', 'r', 'k', 'q')

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

local till, id = leased(ARGV[4])

local function stamp(number)
  return string.format('%.0f', number)
end

if id == ARGV[1] and till > now then -- by an earlier copy; the lease counts from when the answered one was sent
  redis.call('HSET', KEYS[1], 'p:' .. ARGV[4], stamp(now + ARGV[5] * 1000) .. ' ' .. id)
  return 'J ' .. stamped .. ' ' .. (run[2] or '')
end

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
if not run[1] then
  return 'F ' .. stamped
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
if till and till > now then
  return 'T ' .. stamped
end
if not till and parties >= n then
  return 'F ' .. stamped
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

remember(ARGV[1], deadline, 'X')
redis.call('HSET', KEYS[1], 'p:' .. ARGV[4], stamp(now + ARGV[5] * 1000) .. ' ' .. ARGV[1], 'q', stamp(till and parties or parties + 1))

-- live keeps the key of a run that is under way for its lifetime.
local function live(lifetime)
  redis.call('PEXPIRE', KEYS[1], math.max(ENDED, sound(lifetime or '', 1e13) or 0))
end

live(run[3])

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
redis.call('PUBLISH', ARGV[3], 'L ' .. (run[2] or '') .. ' ' .. ARGV[5])
return 'J ' .. stamped .. ' ' .. (run[2] or '')

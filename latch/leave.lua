-- Ends the lease of a party that does not count.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the party
-- ARGV[2] name of the party
-- ARGV[3] channel
-- ARGV[4] Redis time in microseconds after which the request to join is void, if it is not known that the party has joined: it
--         leaves no trace then. 0: it has given up, and waiters are told
--
-- Reply: 'L NOW'
--
-- Generated from latch/lua/leave.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now, stamped = clock()

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
local mine = id == ARGV[1]
if ARGV[4] == '0' then
  if mine and till > now then
    redis.call('HSET', KEYS[1], 'p:' .. ARGV[2], stamped .. ' ' .. id)
    redis.call('PUBLISH', ARGV[3], 'L ' .. (redis.call('HGET', KEYS[1], 'r') or '') .. ' 0')
  end
  return 'L ' .. stamped
end

local function stamp(number)
  return string.format('%.0f', number)
end

-- MEMORY is for how many microseconds after its deadline a request is remembered. A copy that comes within that time knows
-- whether an earlier one ran.
local MEMORY = 30000000

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

if now <= tonumber(ARGV[4]) then -- a copy that comes now must not join
  remember(ARGV[1], tonumber(ARGV[4]), 'X')
end

-- MOST is the highest token that is taken from a key: numbers are exact up to 2^53, and it must leave room to add to.
local MOST = 9e15

-- sound is a value as a number; nil if it is not a whole one from 0 to most. Of what Lockline wrote, all are.
local function sound(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MOST) and number or nil
end

if mine then
  local parties = sound(redis.call('HGET', KEYS[1], 'q') or '') or 1
  redis.call('HSET', KEYS[1], 'q', stamp(math.max(parties - 1, 0)))
  redis.call('HDEL', KEYS[1], 'p:' .. ARGV[2])
end
return 'L ' .. stamped

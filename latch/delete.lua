-- Ends the run that is under way, for all that wait for it.
--
-- KEYS[1] the latch's hash: lua/latch.lua
-- ARGV[1] id of the request
-- ARGV[2] Redis time in microseconds after which the request is void
-- ARGV[3] channel
--
-- Reply: 'D NOW 1' deleted, 'D NOW 0' no run is under way; 'V NOW' or 'U NOW' as of set.lua
--
-- Generated from latch/lua/delete.lua: edit that, and run go generate ./...

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
local run = redis.call('HMGET', KEYS[1], 'n', 'r')
local reply = run[1] and 'D 1' or 'D 0'

local function stamp(number)
  return string.format('%.0f', number)
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

if run[1] then
  finish(run[2] or '', 'D', now, ARGV[3])
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

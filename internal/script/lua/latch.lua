-- What the scripts of a latch share.
--
-- KEYS[1] the latch's hash. While a run is under way:
--           n -> count, r -> id of the run, k -> lifetime in milliseconds,
--           q -> parties that have joined and not counted,
--           p:PARTY -> Redis time in microseconds at which its lease ends, and the id by which it has joined;
--           f -> the lease that ends first, or has been made longer since: its end, and its party,
--           c:ID -> the party that has joined by this id has counted
--         and always, until a Redis time in microseconds with which the value begins:
--           i:ID -> the reply to the request with this id,
--           e:RUN -> how this run ended: Z at 0, D deleted
--           w -> when to look next what can be forgotten, and nothing else

-- MEMORY is for how many microseconds after its deadline a request is remembered. A copy that comes within
-- that time knows whether an earlier one ran.
local MEMORY = 30000000

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

-- last keeps what is remembered for long enough. While a run is under way, that keeps the key.
local function last()
  if redis.call('PTTL', KEYS[1]) < ENDED then
    redis.call('PEXPIRE', KEYS[1], ENDED)
  end
end

-- live keeps the key of a run that is under way for its lifetime.
local function live(lifetime)
  redis.call('PEXPIRE', KEYS[1], math.max(ENDED, sound(lifetime or '', 1e13) or 0))
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

-- remember notes a reply to the request id, until its memory ends.
local function remember(id, deadline, reply)
  redis.call('HSET', KEYS[1], 'i:' .. id, stamp(deadline + MEMORY) .. ' ' .. reply)
  last()
end

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

-- sooner notes that the lease of a party ends at till.
local function sooner(till, party)
  local first = redis.call('HGET', KEYS[1], 'f')
  if first and till < (tonumber(string.match(first, '^%d+')) or 0) then
    redis.call('HSET', KEYS[1], 'f', stamp(till) .. ' ' .. party)
  end
end

-- finish ends a run, and wakes all that wait for it. The first write is one that a full server refuses:
-- nothing is changed then.
local function finish(run, how, now, channel)
  redis.call('HSET', KEYS[1], 'e:' .. run, stamp(now + ENDED * 1000) .. ' ' .. how)
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^[pc]:') then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  redis.call('HDEL', KEYS[1], 'n', 'r', 'k', 'q', 'f')
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

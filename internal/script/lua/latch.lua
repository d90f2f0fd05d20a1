-- Constants and functions for the scripts of a latch.
--
-- KEYS[1] the hash of the latch. It is also the name of the channel for messages about the end of a run or of
--         a lease. Fields during a run:
--           n        the count
--           r        the id of the run
--           k        the lifetime in ms
--           q        the number of parties that have joined but have not counted down
--           p:PARTY  the Redis time in µs at which the lease of the party ends, and the id of its join
--                    request
--           f        the end and the party of the lease that ends first. The lease may have been renewed
--                    since. join.lua and leave.lua delete the field, and look.lua writes it again
--           c:ID     the party that joined by the request with this id has counted down
--         Fields whose value begins with the Redis time in µs until which they are kept:
--           i:ID     the reply to the request with this id
--           e:RUN    how the run ended: Z at 0, D deleted
--         A field that shows that a latch wrote the hash (see foreignField):
--           w        Redis time in µs of the next tidy

-- MEMORY is the time in µs for which a request is remembered after its deadline. For a copy that arrives
-- within that time, the script can find out whether an earlier copy ran.
local MEMORY = 30000000

-- ENDED is the time in ms for which the end of a run is remembered. A later request for the run gets the
-- reply G.
local ENDED = 120000

-- keepAlive ensures that the key lives for at least the lifetime of its run, in ms, and for at least ENDED
-- ms.
local function keepAlive(lifetime)
  local ms = math.max(ENDED, parseNumber(lifetime or '', 1e13) or 0)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.pcall('PEXPIRE', KEYS[1], ms) -- pcall, because look.lua must work on a server that refuses writes
  end
end

-- foreignField returns a field of the hash and its value if no latch wrote the hash. Of several fields, it
-- returns the first in sorted order, because the order of HGETALL differs from server to server. due is the
-- value of the field w. The first request that sets a count, counts, joins or deletes writes that field, and
-- nothing removes it. Before that request, the hash can only have fields i:ID, which leave.lua writes.
local function foreignField(due)
  local all, field, value = due and {} or redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    if not string.find(all[i], '^i:') and not (field and field < all[i]) then
      field, value = all[i], all[i + 1]
    end
  end
  return field, value
end

-- checkIsLatch ends the script with an error if no latch wrote the hash, see foreignField.
local function checkIsLatch(due)
  local field, value = foreignField(due)
  if field then
    failForeign('latch', 'w', field, value)
  end
end

-- tidy removes remembered replies and ends whose time has passed. It reads all fields, so it does this at
-- most once in MEMORY µs. due is the value of the field w.
local function tidy(now, due)
  if due and (tonumber(due) or 0) > now then
    return
  end
  redis.call('HSET', KEYS[1], 'w', toString(now + MEMORY))
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^[ie]:') and (tonumber(string.match(all[i + 1], '^%d+')) or 0) < now then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
end

-- remember stores the reply to the request with this id until MEMORY µs after its deadline.
local function remember(id, deadline, reply)
  redis.call('HSET', KEYS[1], 'i:' .. id, toString(deadline + MEMORY) .. ' ' .. reply)
  keepAlive()
end

-- earlierReply returns the reply to a request if an earlier copy of the request ran, or if the request comes
-- too late. Otherwise the request must run now, and earlierReply returns nil.
local function earlierReply(id, deadline, now)
  local memory = redis.call('HGET', KEYS[1], 'i:' .. id)
  if memory then
    return string.match(memory, '^%d+ (.+)$') or '?'
  end
  if now > deadline then
    return (deadline == 0 or now <= deadline + MEMORY) and 'V' or 'U'
  end
end

-- once runs a request that takes effect only once. ARGV[1] is the id of the request, and ARGV[2] the Redis
-- time in µs after which it is void. act carries out the request, and returns the reply without the time. If
-- the request came too late and no copy of it ran, the reply is 'V NOW'. If the request came so late that
-- nobody knows whether a copy ran, the reply is 'U NOW'.
local function once(act)
  local now, stamped = clock()
  local deadline = tonumber(ARGV[2])
  local reply = earlierReply(ARGV[1], deadline, now)
  if reply then
    onMaster()
  else
    local due = redis.call('HGET', KEYS[1], 'w')
    checkIsLatch(due)
    reply = act(now)
    remember(ARGV[1], deadline, reply)
    tidy(now, due)
  end
  return string.sub(reply, 1, 1) .. ' ' .. stamped .. string.sub(reply, 2)
end

-- endOfRun returns how a former run ended: Z at 0, or D deleted. It returns G if the end of the run is not
-- known any more.
local function endOfRun(run)
  local memory = redis.call('HGET', KEYS[1], 'e:' .. run)
  return memory and string.match(memory, '^%d+ ([ZD])$') or 'G'
end

-- leaseOf returns the end of the lease of a party, and the id of its join request. It returns nil if the
-- party has no lease.
local function leaseOf(party)
  local value = redis.call('HGET', KEYS[1], 'p:' .. party)
  if value then
    local till, id = string.match(value, '^(%d+) (.*)$')
    if not till then
      failDamaged(KEYS[1], 'p:' .. party, value, 'not a time and an id')
    end
    return tonumber(till), id
  end
end

-- endRun ends a run, and notifies all waiters. A full server refuses the first write, and then nothing is
-- changed.
local function endRun(run, how, now)
  redis.call('HSET', KEYS[1], 'e:' .. run, toString(now + ENDED * 1000) .. ' ' .. how)
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^[pc]:') then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  redis.call('HDEL', KEYS[1], 'n', 'r', 'k', 'q', 'f')
  redis.call('PEXPIRE', KEYS[1], ENDED)
  redis.call('PUBLISH', KEYS[1], how .. ' ' .. run)
end

-- decrement decrements the count of a run and returns the new count. At 0, the run ends.
local function decrement(n, run, lifetime, now)
  if n > 1 then
    redis.call('HSET', KEYS[1], 'n', toString(n - 1))
    keepAlive(lifetime)
    return toString(n - 1)
  end
  endRun(run, 'Z', now)
  return '0'
end

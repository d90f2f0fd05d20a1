-- Constants and functions for the scripts of a latch.
--
-- KEYS[1] the hash of the latch. Its name is also the channel of messages that a run or a lease has ended.
--         Fields during a run:
--           n        the count
--           r        the id of the run
--           k        the lifetime in ms
--           q        the number of parties that have joined and not counted
--           p:PARTY  the Redis time in µs at which the lease of the party ends, and the id of its join
--                    request
--           f        the end and the party of the lease that ends first. The lease may have been renewed
--                    since. The field is missing after a party has joined or left
--           c:ID     the party that joined by the request with this id has counted
--         Fields that are kept until a Redis time in µs, with which the value begins:
--           i:ID     the reply to the request with this id
--           e:RUN    how the run ended: Z at 0, D deleted
--           w        only that time, which is the time of the next tidy. The field shows that a latch wrote
--                    the hash (see foreignField)

-- MEMORY is the time in µs for which a request is remembered after its deadline. A copy within that time can
-- find out whether an earlier copy ran.
local MEMORY = 30000000

-- ENDED is the time in ms for which the end of a run is remembered. A later request for it gets the reply G.
local ENDED = 120000

-- keepAlive keeps the key for the lifetime of its run, and for as long as an end is remembered.
local function keepAlive(lifetime)
  local ms = math.max(ENDED, parseNumber(lifetime or '', 1e13) or 0)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.pcall('PEXPIRE', KEYS[1], ms) -- look.lua also does this where nothing can be written
  end
end

-- foreignField returns a field of the hash and its value if no latch wrote the hash. Of several fields, it
-- returns the first in sorted order, because the order of HGETALL differs from server to server. due is the
-- field w. The first request that sets a count, counts, joins or deletes writes that field, and nothing
-- removes it. Before, the hash can only have fields i:ID, of leave.lua.
local function foreignField(due)
  local all, field, value = due and {} or redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    if not string.find(all[i], '^i:') and not (field and field < all[i]) then
      field, value = all[i], all[i + 1]
    end
  end
  return field, value
end

-- checkIsLatch ends the script if no latch wrote the hash, see foreignField.
local function checkIsLatch(due)
  local field, value = foreignField(due)
  if field then
    failForeign('latch', 'w', field, value)
  end
end

-- tidy removes remembered replies and ends whose time has passed. It reads all fields, so it runs at most
-- once in MEMORY. due is the field w.
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

-- remember stores the reply to the request with this id until MEMORY after its deadline.
local function remember(id, deadline, reply)
  redis.call('HSET', KEYS[1], 'i:' .. id, toString(deadline + MEMORY) .. ' ' .. reply)
  keepAlive()
end

-- earlierReply returns the reply to a request if an earlier copy of it ran, or if it comes too late. It
-- returns nil if the request must run now.
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
-- time in µs after which it is void. act carries it out, and returns the reply without the time. The reply is
-- 'V NOW' if the request came too late and no copy of it ran. It is 'U NOW' if the request came so late that
-- this is not known.
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

-- endOfRun returns Z or D for the end of a former run, or G if that is not known any more.
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

-- endRun ends a run, and notifies all waiters. A full server refuses the first write, so nothing is changed
-- then.
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

-- decrement decrements the count of a run and returns it. At 0, the run ends.
local function decrement(n, run, lifetime, now)
  if n > 1 then
    redis.call('HSET', KEYS[1], 'n', toString(n - 1))
    keepAlive(lifetime)
    return toString(n - 1)
  end
  endRun(run, 'Z', now)
  return '0'
end

-- Constants and functions for the scripts of a latch.
--
-- KEYS[1] the hash of the latch. This key is also the name of the channel on which the scripts publish the
--         end of a run, and changes of leases. Fields during a run:
--           n        the count
--           r        the id of the run
--           k        the lifetime in ms
--           q        the number of parties that have joined but have not counted down
--           p:PARTY  the Redis time in µs at which the lease of the party ends, and the id of the request
--                    by which the party joined. Then ' R' follows if the party has replaced a dead one
--           f        the Redis time in µs at which the first lease ends, and its party. The party may have
--                    renewed this lease since. join.lua and leave.lua delete the field, look.lua writes it
--           c:ID     the party that joined by the request with this id has counted down
--         Fields whose value begins with the Redis time in µs until which they are kept:
--           i:ID     the reply to the request with this id
--           e:RUN    how the run ended: Z at 0, D deleted
--         A field that shows that a latch wrote the hash (see foreignField):
--           w        Redis time in µs from which the function tidy may run again

-- MEMORY is the time in µs for which the reply to a request is remembered after the deadline of the request.
-- If a copy of the request arrives within that time, the script can find out whether an earlier copy ran.
local MEMORY = 30000000

-- ENDED is the minimum time in ms for which the hash has the field e:RUN after the end of a run. When Redis
-- has deleted the field, a request that names this run gets the reply G, which means that Redis does not know
-- the run any more.
local ENDED = 120000

-- keepAlive ensures that the key lives for at least ENDED ms more. `lifetime` is the lifetime in ms of the
-- current run, or nil. If it is longer than ENDED, the key lives for at least that time. `lease` is the lease
-- in ms of a party, or nil. If another session began the run, the lease may be longer than the lifetime. The
-- key lives for at least ENDED ms after the lease, so that waiters can notice its end.
local function keepAlive(lifetime, lease)
  local ms = math.max(ENDED + (lease or 0), parseNumber(lifetime or '', 1e13) or 0)
  if redis.call('PTTL', KEYS[1]) < ms then
    -- PEXPIRE is called by pcall, because look.lua must reply even if a server refuses writes.
    redis.pcall('PEXPIRE', KEYS[1], toString(ms))
  end
end

-- foreignField returns a field of the hash and its value if no latch wrote the hash. Of several fields, it
-- returns the first in sorted order, because the order of HGETALL differs from server to server.
--
-- due is the value of the field w. If the hash has this field, a latch wrote the hash, and foreignField
-- returns nil. The first request that sets a count, counts, joins or deletes writes the field w, and nothing
-- removes it. Before that request, the hash of a latch can only have fields i:ID, which leave.lua writes. So
-- a hash with other fields and without w is foreign.
local function foreignField(due)
  local all, field, value = due and {} or redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    if not string.find(all[i], '^i:') and not (field and field < all[i]) then
      field, value = all[i], all[i + 1]
    end
  end
  return field, value
end

-- checkIsLatch ends the script with an error if no latch wrote the hash. due is the value of the field w, see
-- foreignField.
local function checkIsLatch(due)
  local field, value = foreignField(due)
  if field then
    failForeign('latch', 'w', field, value)
  end
end

-- tidy removes the fields i:ID and e:RUN whose time has passed. Because it reads all fields, it does this at
-- most once in MEMORY µs. due is the value of the field w. Before this Redis time, tidy does nothing.
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

-- earlierReply returns the reply to a request that must not run now. If an earlier copy of the request ran,
-- this is the stored reply. If the request came too late, it is V or U, see once. If the request must run
-- now, earlierReply returns nil.
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
-- time in µs after which the request is void. ARGV[2] is 0 while the session does not know the Redis time.
-- act carries out the request, and returns the reply without the time. If the request came too late and no
-- copy of it ran, the reply is 'V NOW'. If the request came so late that nobody knows whether a copy ran, the
-- reply is 'U NOW'.
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

-- endOfRun returns how a former run ended. Z means that its count reached 0, and D that it was deleted. G
-- means that Redis does not know the run any more.
local function endOfRun(run)
  local memory = redis.call('HGET', KEYS[1], 'e:' .. run)
  return memory and string.match(memory, '^%d+ ([ZD])$') or 'G'
end

-- leaseOf returns the Redis time in µs at which the lease of a party ends or has ended, and the id of the
-- request by which the party joined. The third result is ' R' if the party has replaced a dead one, and
-- otherwise ''. leaseOf returns nil if the party has no lease.
local function leaseOf(party)
  local value = redis.call('HGET', KEYS[1], 'p:' .. party)
  if value then
    local till, id, replaces = string.match(value, '^(%d+) (%S*)(.*)$')
    if not till then
      failDamaged(KEYS[1], 'p:' .. party, value, 'not a time and an id')
    end
    return tonumber(till), id, replaces
  end
end

-- endRun ends a run, and notifies all waiters. `how` is Z or D, see endOfRun. In count.lua and delete.lua,
-- the HSET is the first write of the script. If a full server refuses it, the run stays as it was.
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

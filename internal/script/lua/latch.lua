-- What the scripts of a latch share.
--
-- KEYS[1] the latch's hash, and the channel on which it is said that a run or a lease ends. While a run is
--         under way:
--           n -> count, r -> id of the run, k -> lifetime in milliseconds,
--           q -> parties that have joined and not counted,
--           p:PARTY -> Redis time in microseconds at which its lease ends, and the id by which it has joined;
--           f -> the lease that ends first, or has been made longer since: its end, and its party; not known
--                once a party has joined or left,
--           c:ID -> the party that has joined by this id has counted
--         and always, until a Redis time in microseconds with which the value begins:
--           i:ID -> the reply to the request with this id,
--           e:RUN -> how this run ended: Z at 0, D deleted
--           w -> when to look next what can be forgotten, and nothing else. It also shows that a latch wrote
--                the hash, see other

-- MEMORY is for how many microseconds after its deadline a request is remembered. A copy that comes within
-- that time knows whether an earlier one ran.
local MEMORY = 30000000

-- ENDED is for how many milliseconds the end of a run is remembered: longer than any request.
local ENDED = 120000

-- live keeps the key for the lifetime of its run, and for as long as an end is remembered.
local function live(lifetime)
  local ms = math.max(ENDED, sound(lifetime or '', 1e13) or 0)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.pcall('PEXPIRE', KEYS[1], ms) -- look.lua also does this where nothing can be written
  end
end

-- other returns a field of the hash and its value if no latch wrote the hash. Of several fields, it returns
-- the first in sorted order, because the order of HGETALL differs from server to server. due is the field w.
-- The first request that sets a count, counts, joins or deletes writes that field, and nothing removes it.
-- Before, the hash can only have fields i:ID, of leave.lua.
local function other(due)
  local all, field, value = due and {} or redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    if not string.find(all[i], '^i:') and not (field and field < all[i]) then
      field, value = all[i], all[i + 1]
    end
  end
  return field, value
end

-- ours ends the script if no latch wrote the hash, see other.
local function ours(due)
  local field, value = other(due)
  if field then
    foreign('latch', 'w', field, value)
  end
end

-- tidy forgets what is over. Not each time: it looks at all fields. due is the field w.
local function tidy(now, due)
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
  live()
end

-- known is the reply to a request of which a copy ran before, or which comes too late. nil: it is to run now.
local function known(id, deadline, now)
  local memory = redis.call('HGET', KEYS[1], 'i:' .. id)
  if memory then
    return string.match(memory, '^%d+ (.+)$') or '?'
  end
  if now > deadline then
    return (deadline == 0 or now <= deadline + MEMORY) and 'V' or 'U'
  end
end

-- once runs a request that takes effect once. Its first arguments are its id, and the Redis time in
-- microseconds after which it is void. act does it, and returns the reply but for the time. The reply is 'V
-- NOW' if it came too late and no copy of it ran, and 'U NOW' if it came so late that this is not known.
local function once(act)
  local now, stamped = clock()
  local deadline = tonumber(ARGV[2])
  local reply = known(ARGV[1], deadline, now)
  if reply then
    onMaster()
  else
    local due = redis.call('HGET', KEYS[1], 'w')
    ours(due)
    reply = act(now)
    remember(ARGV[1], deadline, reply)
    tidy(now, due)
  end
  return string.sub(reply, 1, 1) .. ' ' .. stamped .. string.sub(reply, 2)
end

-- ended is how a run has ended that is not under way: Z, D, or G if nothing is known of it.
local function ended(run)
  local memory = redis.call('HGET', KEYS[1], 'e:' .. run)
  return memory and string.match(memory, '^%d+ ([ZD])$') or 'G'
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

-- finish ends a run, and wakes all that wait for it. The first write is one that a full server refuses:
-- nothing is changed then.
local function finish(run, how, now)
  redis.call('HSET', KEYS[1], 'e:' .. run, stamp(now + ENDED * 1000) .. ' ' .. how)
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

-- less is the count of a run, made one less; at 0, the run ends.
local function less(n, run, lifetime, now)
  if n > 1 then
    redis.call('HSET', KEYS[1], 'n', stamp(n - 1))
    live(lifetime)
    return stamp(n - 1)
  end
  finish(run, 'Z', now)
  return '0'
end

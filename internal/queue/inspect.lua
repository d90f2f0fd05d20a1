-- Reads all that is known of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- KEYS[3], KEYS[4], KEYS[5] the queue: internal/inbox/lua/line.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}, "now": MICROSECONDS,
-- "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}}
--
-- Generated from internal/queue/lua/inspect.lua: edit that, and run go generate ./...

local queue = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

-- map reads a hash; false if it is empty, which would not encode as an object.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

return cjson.encode({
  ttl = redis.call('PTTL', KEYS[1]),
  lock = map(KEYS[1]) or nil,
  metadata = map(KEYS[2]) or nil,
  now = select(2, clock()),
  queue = #queue > 0 and queue or nil,
  about = map(KEYS[5]) or nil,
})

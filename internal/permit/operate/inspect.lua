-- Reads all that is known of permits, at one instant.
--
-- KEYS    internal/permit/lua/permit.lua
--
-- Reply: JSON {"now": MICROSECONDS, "limit": N, "holders": [OWNER, END, ...], "held": {OWNER: 'N TOKEN ABOUT'}, "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}}
--
-- Generated from internal/permit/operate/lua/inspect.lua: edit that, and run go generate ./...

local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
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
  now = select(2, clock()),
  limit = redis.call('HGET', KEYS[2], 'n') or nil,
  holders = #holders > 0 and holders or nil,
  held = map(KEYS[6]) or nil,
  queue = #queue > 0 and queue or nil,
  about = map(KEYS[5]) or nil,
})

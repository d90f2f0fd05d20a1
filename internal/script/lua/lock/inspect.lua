-- Reads all that is known of a lock, at one instant.
--
-- KEYS    internal/script/lua/line.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}, "now": MICROSECONDS,
-- "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}}

local queue = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
return cjson.encode({
  ttl = redis.call('PTTL', KEYS[1]),
  lock = map(KEYS[1]) or nil,
  metadata = map(KEYS[2]) or nil,
  now = select(2, clock()),
  queue = #queue > 0 and queue or nil,
  about = map(KEYS[5]) or nil,
})

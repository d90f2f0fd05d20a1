-- Reads all that is known of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- KEYS[3], KEYS[4], KEYS[5] the queue: internal/script/lua/line.lua
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

-- Reads all that is known of a lock, at one instant.
--
-- KEYS    internal/script/lua/redisson.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}}

return cjson.encode({
  ttl = redis.call('PTTL', KEYS[1]),
  lock = map(KEYS[1]) or nil,
  metadata = map(KEYS[2]) or nil,
})

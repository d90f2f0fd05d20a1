-- Reads all that is known of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}}

return cjson.encode({
  ttl = redis.call('PTTL', KEYS[1]),
  lock = map(KEYS[1]) or nil,
  metadata = map(KEYS[2]) or nil,
})

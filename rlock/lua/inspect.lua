-- Reads all that is known of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its memory. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "memory": {...}}

return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = map(KEYS[1]) or nil, memory = map(KEYS[2]) or nil })

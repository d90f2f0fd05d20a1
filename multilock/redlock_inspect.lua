-- Reads all that one server knows of a lock, at one instant.
--
-- KEYS    as in the prelude
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "memory": {...}}; the token is the one in the memory

local lock = map(KEYS[1])
if lock then
  lock.t = redis.call('HGET', KEYS[2], 't') or '0'
end
return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = lock or nil, memory = map(KEYS[2]) or nil })

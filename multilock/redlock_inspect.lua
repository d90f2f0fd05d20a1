-- Reads all that one server knows of a lock, at one instant.
--
-- KEYS    as in the prelude
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "memory": {...}}; where the holder's token
-- was accepted, t of the lock is the first of its block, else what it proposed first

local lock, memory = map(KEYS[1]), map(KEYS[2])
if lock and memory and memory.b and lock[memory.b] then
  lock.t = stamp(tonumber(memory.t) - BLOCK + 1)
end
return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = lock or nil, memory = memory or nil })

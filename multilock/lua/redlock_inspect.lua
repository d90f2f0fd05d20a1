-- Reads all that one server knows of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its memory. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "memory": {...}}; where the holder's token
-- was accepted, t of the lock is the first of its block, else what it proposed first; 0 where no token of ours is stored

local lock, memory = map(KEYS[1]), map(KEYS[2])
local now = clock()
local last = memory and memory.t and sound(memory.t, now + 86400e6)
if memory and not last then
  memory.t = '0'
elseif lock and memory and memory.b and lock[memory.b] then
  lock.t = stamp(last - BLOCK + 1)
end
if lock and lock.t and not sound(lock.t, now + 86400e6) then
  lock.t = '0'
end
return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = lock or nil, memory = memory or nil })

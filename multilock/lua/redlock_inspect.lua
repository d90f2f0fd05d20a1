-- Reads all that one server knows of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}}; where the holder's token
-- was accepted, t of the lock is the first of its block, else what it proposed first; 0 where no token of ours is stored

local lock, metadata = map(KEYS[1]), map(KEYS[2])
local now = clock()
local last = metadata and metadata.t and sound(metadata.t, now + 86400e6)
if metadata and not last then
  metadata.t = '0'
elseif lock and metadata and metadata.b and lock[metadata.b] then
  lock.t = stamp(last - BLOCK + 1)
end
if lock and lock.t and not sound(lock.t, now + 86400e6) then
  lock.t = '0'
end
return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = lock or nil, metadata = metadata or nil })

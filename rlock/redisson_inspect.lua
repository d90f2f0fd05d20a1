-- Reads all that is known of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}}
--
-- Generated from rlock/lua/redisson_inspect.lua: edit that, and run go generate ./...

-- map reads a hash; false if it is empty, which would not encode as an object.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = map(KEYS[1]) or nil, metadata = map(KEYS[2]) or nil })

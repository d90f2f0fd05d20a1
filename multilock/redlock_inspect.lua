-- Reads all that one server knows of a lock, at one instant.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
--
-- Reply: JSON {"ttl": PTTL, "lock": {...}, "metadata": {...}}; where the holder's token
-- was accepted, t of the lock is the first of its block, else what it proposed first; 0 where no token of ours is stored
--
-- Generated from multilock/lua/redlock_inspect.lua: edit that, and run go generate ./...

-- map reads a hash; false if it is empty, which would not encode as an object.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

local lock, metadata = map(KEYS[1]), map(KEYS[2])

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now = clock()

-- MOST is the highest token that is taken from a key: numbers are exact up to 2^53, and it must leave room to add to.
local MOST = 9e15

-- sound is a value as a number; nil if it is not a whole one from 0 to most. Of what Lockline wrote, all are.
local function sound(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MOST) and number or nil
end

local last = metadata and metadata.t and sound(metadata.t, now + 86400e6)

-- BLOCK is how many tokens a grant reserves: Block in scripts.go.
local BLOCK = 1000

local function stamp(number)
  return string.format('%.0f', number)
end

if metadata and not last then
  metadata.t = '0'
elseif lock and metadata and metadata.b and lock[metadata.b] then
  lock.t = stamp(last - BLOCK + 1)
end
if lock and lock.t and not sound(lock.t, now + 86400e6) then
  lock.t = '0'
end
return cjson.encode({ ttl = redis.call('PTTL', KEYS[1]), lock = lock or nil, metadata = metadata or nil })

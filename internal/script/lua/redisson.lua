-- What the scripts of locks that are shared with Redisson have beside internal/script/lua/shared.lua. Their
-- arguments are those of the scripts in internal/script/lua/lock, and behind them
--   CHANNEL of the lock
--   HOW     messages are published on it: see sharding in shared.lua
-- They use none that is about a queue.
--
-- KEYS[1], KEYS[2] the lock's hash and its metadata: internal/script/lua/shared.lua
-- KEYS[3] Redisson's token counter

-- publish says by SPUBLISH or PUBLISH, in Redisson's own words, that the lock is free, and returns how many
-- clients of this server heard it.
local function publish(how, on)
  local heard = sharding(how, on) and redis.pcall('SPUBLISH', on, '0')
  return type(heard) == 'number' and heard or redis.call('PUBLISH', on, '0')
end

-- alarm wakes those that wait for a lock whose data were deleted: nothing else would tell them.
local function alarm(how, on)
  if redis.call('HLEN', KEYS[1]) == 0 then
    publish(how, on)
  end
end

-- What the scripts of locks that are shared with Redisson have beside internal/script/lua/shared.lua. Their
-- arguments are those of the scripts in internal/script/lua/lock, and behind them
--   CHANNEL of the lock
--   HOW     messages are published on it: see sharding in shared.lua
-- They use none that is about a queue.
--
-- KEYS[1], KEYS[2] the lock's hash and its metadata: internal/script/lua/shared.lua
-- KEYS[3] Redisson's token counter

-- publish sends a message, by SPUBLISH or PUBLISH, and returns how many clients of this server got it.
local function publish(how, channel, message)
  local heard = sharding(how, channel) and redis.pcall('SPUBLISH', channel, message)
  return type(heard) == 'number' and heard or redis.call('PUBLISH', channel, message)
end

-- alarm wakes those that wait for a lock whose data were deleted: nothing else would tell them.
local function alarm(how, channel)
  if redis.call('HLEN', KEYS[1]) == 0 then
    publish(how, channel, '0')
  end
end

-- What the scripts of locks that are shared with Redisson have beside shared.lua.

-- sharding reports whether messages on a channel are published by SPUBLISH, for clients that SSUBSCRIBE: never if how is
-- 'classic', always if it is 'sharded', and if it is 'auto', where the server can do both and the user may. A waiter and
-- the session that wakes it get the same answer, if their rights are the same.
local function sharding(how, channel)
  local function may(...) -- whole commands: Redis with the security updates of 2026 looks at the number of arguments, too
    local known, allowed = pcall(redis.acl_check_cmd, ...) -- older than Redis 7: not known, as the commands are not
    return known and allowed
  end
  return how == 'sharded' or how == 'auto' and may('SSUBSCRIBE', channel) and may('SPUBLISH', channel, '')
end

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

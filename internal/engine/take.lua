-- The common case of a lock script, before the prelude: the lock is free, and what was
-- granted before was released. ARGV is as in rlock/lock.lua. What it does is what past and
-- grant do; anything else is left to what is behind it.
--
-- free     the lock is free, nobody waits for it, and nothing else hinders
--
-- now, stamped: the Redis time in microseconds, as a number and as text

local time = redis.call('TIME')
local now, stamped = time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
if free then
  local memory = redis.call('HMGET', KEYS[2], 't', 'r', 'a', ARGV[1])
  if memory[1] == memory[2] and now > (tonumber(memory[1] or 0) or now) and memory[3] ~= ARGV[1] and not memory[4] then
    redis.call('HSET', KEYS[1], ARGV[1], '1', 't', stamped, 's', '0', 'd', ARGV[4])
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('HSET', KEYS[2], 't', stamped)
    if redis.call('PTTL', KEYS[2]) < ARGV[2] + ARGV[5] then
      redis.call('PEXPIRE', KEYS[2], ARGV[2] + 2 * ARGV[5])
    end
    return 'G ' .. stamped .. ' ' .. stamped
  end
end

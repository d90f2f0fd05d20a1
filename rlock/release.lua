-- Frees the lock whatever its hold count, and wakes those who wait. Also undoes
-- an attempt whose outcome its session never learned.
--
-- KEYS[1] the lock's hash
-- KEYS[2] the lock's memory
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] channel
-- ARGV[4] milliseconds for which the memory of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token

local held = redis.call('HMGET', KEYS[1], ARGV[1], 't')
local memory = redis.call('HMGET', KEYS[2], 'r', 'l')
local reply = 'L'

if held[1] then
  -- Whatever the token: once this attempt ends, nobody wants what it is granted.
  redis.call('DEL', KEYS[1])
  redis.pcall('HSET', KEYS[2], 'r', held[2], 'a', ARGV[1]) -- not possible while short of memory
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  redis.call('PUBLISH', ARGV[3], '0') -- the message is Redisson's own
  if ARGV[2] == '' or ARGV[2] == held[2] then
    reply = 'R'
  end
elseif ARGV[2] ~= '' and memory[1] then
  -- Whatever lies above the last token lost and not above the last one released
  -- was released, by whomever since.
  local token = tonumber(ARGV[2])
  if token <= tonumber(memory[1]) and token > tonumber(memory[2] or 0) then
    reply = 'R'
  end
end

if ARGV[5] ~= '0' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local all = redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and tonumber(all[i + 1]) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(ARGV[5]) >= now then
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
    if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then
      redis.call('PEXPIRE', KEYS[2], ARGV[4])
    end
  end
end
return reply

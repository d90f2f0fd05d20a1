-- Ends an attempt: it leaves the queue, and if it holds the lock, the first living
-- waiter holds it next.
--
-- KEYS    as in the prelude
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds for which the memory of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN' behind it: handed over within the same session

local now, keep = clock(), tonumber(ARGV[4])
local owner, token = holder()
local memory = redis.call('HMGET', KEYS[2], 'r', 'l')
local reply = 'L'

if owner ~= ARGV[1] then
  leave(ARGV[1])
end

if owner == ARGV[1] then
  -- Whatever the token: once this attempt ends, nobody wants what it is granted.
  redis.call('DEL', KEYS[1])
  redis.pcall('HSET', KEYS[2], 'r', token, 'a', owner)
  -- The tickets in the memory outlive the queue.
  redis.call('PEXPIRE', KEYS[2], stamp(keep + math.max(redis.call('PTTL', KEYS[3]), 0)))
  if ARGV[2] == '' or ARGV[2] == token then
    reply = 'R'
  end
  local next, granted = handOver(session(owner), ARGV[3], now, keep)
  if next and session(next) == session(owner) then
    reply = reply .. ' ' .. next .. ' ' .. granted
  end
elseif ARGV[2] ~= '' and memory[1] then
  -- Whatever lies above the last token lost and not above the last one released
  -- was released, by whomever since.
  local mine = tonumber(ARGV[2])
  if mine <= tonumber(memory[1]) and mine > tonumber(memory[2] or 0) then
    reply = 'R'
  end
end

if ARGV[5] ~= '0' then
  local all = redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and tonumber(all[i + 1]) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(ARGV[5]) >= now then
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
    outlive(KEYS[2], keep)
  end
end
return reply

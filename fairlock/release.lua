-- Ends an attempt: it leaves the queue, and if it holds the lock, the first living
-- waiter holds it next.
--
-- KEYS    as in the preludes
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
local reply = 'L'
if owner == ARGV[1] then
  -- The tickets in the memory outlive the queue.
  free(owner, token, keep + math.max(redis.call('PTTL', KEYS[3]), 0))
  if ARGV[2] == '' or ARGV[2] == token then
    reply = 'R'
  end
  local next, granted = handOver(session(owner), ARGV[3], now, keep)
  if next and session(next) == session(owner) then
    reply = reply .. ' ' .. next .. ' ' .. granted
  end
else
  leave(ARGV[1])
  if ARGV[2] ~= '' and released(ARGV[2]) then
    reply = 'R'
  end
end
mark(ARGV[1], ARGV[5], keep)
return reply

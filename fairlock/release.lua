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
-- ARGV[6] last token used of the grant's block; 0 where none was, '' where that is
--         not known
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN' behind it: handed over to that one

local keep = tonumber(ARGV[4])
local held = redis.call('HMGET', KEYS[1], ARGV[1], 't')
local reply = 'L'
if held[1] then
  local mine = ARGV[2] == held[2] or ARGV[2] == ''
  -- Not DEL: while a slot moves to another node, a script cannot make a key again.
  redis.call('HDEL', KEYS[1], ARGV[1])
  local used = conclude(ARGV[1], held[2], mine and ARGV[6] or '', keep)
  if mine then
    reply = 'R'
  end
  local next, token = handOver(session(ARGV[1]), ARGV[3], nil, keep, tonumber(used))
  if next then
    reply = reply .. ' ' .. next .. ' ' .. token
  else
    redis.call('DEL', KEYS[1])
  end
else
  leave(ARGV[1])
  if ARGV[2] ~= '' and released(ARGV[2]) then
    reply = 'R'
  end
end
mark(ARGV[1], ARGV[5], keep)
return reply

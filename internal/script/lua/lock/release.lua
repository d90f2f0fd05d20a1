-- Ends an attempt: it leaves the queue, and if it holds the lock, or the lock is free by now, the first
-- living waiter holds it next.
--
-- KEYS    internal/script/lua/line.lua. While a slot moves, a Cluster refuses requests for keys of which some
--         exist, and a queue often does not: without its keys, a lock without waiters can be released
-- ARGV[1] owner field
-- ARGV[2] token of its grant, or '' for any. Whatever it was granted ends; the reply, and how much of the
--         block is given back, depend on this
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds for which the metadata of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
-- ARGV[6] last token used of the grant's block; 0 where none was, '' where that is not known
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' OWNER TOKEN LEASE' behind it: handed over to that one, for LEASE milliseconds

if not KEYS[3] then
  local held = redis.call('HMGET', KEYS[1], ARGV[1], 'w')
  if not held[1] or held[2] then
    return redis.error_reply('TRYAGAIN the queue may be needed')
  end
end
local used, mine, waited, odd = conclude()
local reply = mine and 'R' or 'L'
if used and not waited and ARGV[5] == '0' then
  return reply
end

local keep = tonumber(ARGV[4])
if not used then
  whole(KEYS[1], 't', odd)
  return depart()
end
if waited then
  local next, _, _, told = handOver(session(ARGV[1]), ARGV[3], nil, keep, tonumber(used))
  if next then
    reply = reply .. told
  else
    redis.call('DEL', KEYS[1])
  end
end
tombstone(ARGV[1], ARGV[5], keep)
return reply

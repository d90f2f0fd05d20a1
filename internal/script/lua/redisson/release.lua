-- Frees a lock that is shared with Redisson, as release.lua, and gives back tokens of Redisson's counter,
-- too.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- KEYS[3] Redisson's token counter
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] of locks with a queue
-- ARGV[4] milliseconds for which the metadata of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
-- ARGV[6] last token used of the grant's block; 0 where none was, '' where that is
--         not known
-- ARGV[7] channel
-- ARGV[8] how the message is published: see sharding in shared.lua
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token
--        either with ' HEARD' behind it: a lock was freed, and that many clients of
--        this server were told. If its data are gone, they are told, too

local used, mine, odd = conclude(ARGV[1], ARGV[2], ARGV[4], ARGV[6], BLOCK)
local reply = 'L'
if used then
  redis.call('SET', KEYS[3], used, 'XX') -- Redisson raises it only while it holds
  local heard = publish(ARGV[8], ARGV[7], '0') -- the message is Redisson's own
  reply = (mine and 'R ' or 'L ') .. heard
  if ARGV[5] == '0' then
    return reply
  end
end

if odd then
  whole(KEYS[1], 't', odd)
end
if not used and ARGV[2] ~= '' then
  if released(ARGV[2]) then
    reply = 'R'
  else
    alarm(ARGV[8], ARGV[7])
  end
end
tombstone(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply

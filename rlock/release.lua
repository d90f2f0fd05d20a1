-- Frees the lock whatever its hold count, and wakes those who wait. Also undoes
-- an attempt whose outcome its session never learned.
--
-- KEYS    as in the prelude
-- ARGV[1] owner field
-- ARGV[2] token of the grant to end; '' ends whatever this attempt was granted
-- ARGV[3] channel
-- ARGV[4] milliseconds for which the memory of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
--
-- Reply: 'R' released, now or by an earlier copy of this request
--        'L' lost: not held, and never released under this token

local owner, token = holder()
local reply = 'L'
if owner == ARGV[1] then
  free(owner, token, tonumber(ARGV[4]))
  redis.call('PUBLISH', ARGV[3], '0') -- the message is Redisson's own
  if ARGV[2] == '' or ARGV[2] == token then
    reply = 'R'
  end
elseif ARGV[2] ~= '' and released(ARGV[2]) then
  reply = 'R'
end
mark(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply

-- Ends what an attempt was granted here, if anything, and tells waiters, if there are any, which
-- grant is over, and the last token used. The nonce that they have of this server proves that it says so.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field
-- ARGV[2] the first token proposed, by which all servers know the grant
-- ARGV[3] channel
-- ARGV[4] milliseconds for which the metadata of an idle lock is kept
-- ARGV[5] Redis time in microseconds until which a copy of the attempt's request
--         could still arrive and must find it over; 0 where none is under way
-- ARGV[6] last token used of the attempt's block, of which the rest is given back;
--         '' where that is not known, and where its first token was not accepted
--
-- Reply: 'R HEARD' released, and that many clients of this server were told; 0 if no attempt waits that was refused
--        'R' released by an earlier copy of this request
--        'L' not held here

local reply = 'L'
local held = redis.call('HMGET', KEYS[1], ARGV[1], 'w')
if held[1] then
  redis.call('DEL', KEYS[1])
  local last = ARGV[6]
  if last == '' then
    last = redis.call('HGET', KEYS[2], 't') or '0'
  end
  redis.pcall('HSET', KEYS[2], 't', last, 'a', ARGV[1]) -- not possible while short of memory
  reply = 'R ' .. (held[2] and redis.call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. last .. ' ' .. held[2]) or 0)
elseif redis.call('HGET', KEYS[2], 'a') == ARGV[1] then
  reply = 'R'
elseif redis.call('HLEN', KEYS[1]) == 0 then -- its data were deleted, and nothing else would tell
  redis.call('PUBLISH', ARGV[3], ARGV[2])
end
if ARGV[5] == '0' then
  return reply
end

tombstone(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply

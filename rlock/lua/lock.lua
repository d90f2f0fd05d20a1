-- Takes a free lock, once for each attempt.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field: session and attempt
-- ARGV[2] lease in milliseconds
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] what the session says of itself
-- ARGV[5] milliseconds by which the metadata outlives the lease
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW TOKEN'        granted, now or by an earlier copy of this request
--   'H NOW PTTL HOLDER TOKEN ABOUT'  held by another for PTTL milliseconds (-1: no
--                        expiry), whose session says ABOUT of itself
--   'V NOW'              expired: came too late
--   'S NOW'              stale: this attempt is over already

local free = redis.call('HLEN', KEYS[1]) == 0
local reply, now, stamped = take(free, ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if reply then
  return reply
end
local owner, token, about = holder()
if owner and owner ~= ARGV[1] then
  return 'H ' .. stamped .. ' ' .. stamp(redis.call('PTTL', KEYS[1])) .. ' ' .. owner .. ' ' .. token .. ' ' .. about
end
local lease, keep = tonumber(ARGV[2]), tonumber(ARGV[5])
if owner then
  renew(lease, keep)
else
  local last, lost, over = past(ARGV[1])
  if over then
    return 'S ' .. stamped
  end
  token = grant(ARGV[1], ARGV[4], lease, now, keep, last, lost)
end
return 'G ' .. stamped .. ' ' .. token

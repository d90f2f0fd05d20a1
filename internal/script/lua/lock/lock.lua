-- Takes a free lock that has no waiters; else stands in the queue, once: asking
-- again keeps the place. A free lock with a queue goes to the first living waiter.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- KEYS[3], KEYS[4], KEYS[5] the queue: internal/script/lua/line.lua
-- ARGV[1] owner field: session and attempt
-- ARGV[2] lease in milliseconds
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] what the session says of itself
-- ARGV[5] milliseconds by which the metadata outlives the lease
-- ARGV[6] liveness in milliseconds: for how long the attempt is known to live; 0
--         does not stand in the queue, and needs none of what follows ARGV[7]
-- ARGV[7] what the names of the sessions' channels begin with
-- ARGV[8] how many wait with this attempt
-- ARGV[9] nonce: comes back in the message of a grant, which no other client can forge then
-- ARGV[10] how the session is told
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW TOKEN'              granted, now or by an earlier copy of this request
--   'H NOW PTTL HOLDER TOKEN ABOUT'  held by another for PTTL milliseconds (-1: no
--                              expiry), whose session says ABOUT of itself
--   'W NOW PTTL HOLDER TOKEN ABOUT'  the same, and another session is next in the queue
--   'V NOW'                    expired: came too late
--   'S NOW'                    stale: this attempt is over already

local reply, now, stamped = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if reply then
  return reply
end
local asking = ARGV[1]
local lease, liveness, keep = tonumber(ARGV[2]), tonumber(ARGV[6]), tonumber(ARGV[5])
local owner, token, about = holder()
if owner == asking then
  renew(lease, keep)
  return 'G ' .. stamped .. ' ' .. token
end
local last, lost, over = past(asking)
if over then
  return 'S ' .. stamped
end
if not owner then
  local next = listener(session(asking), ARGV[7], now)
  if not next or next == asking then
    if next then
      leave(asking)
    end
    token = grant(asking, ARGV[4], lease, now, keep, last, lost, redis.call('PTTL', KEYS[3]) ~= -2)
    return 'G ' .. stamped .. ' ' .. token
  end
  owner, token, about = handOver(session(asking), ARGV[7], now, keep, last, lost)
end
local status = 'H '
if liveness > 0 then
  local ticket = stamp(math.max((sound(redis.call('HGET', KEYS[2], 'q') or '') or 0) + 1, now))
  if redis.call('ZADD', KEYS[3], 'NX', ticket, asking) == 1 then
    local nonce = ARGV[9] .. marks(ARGV[7], session(asking), ARGV[10])
    redis.call('HSET', KEYS[2], 'q', ticket)
    redis.call('HSET', KEYS[1], 'w', '1')
    redis.call('HSET', KEYS[5], asking, table.concat({ ARGV[8], ARGV[2], nonce, ARGV[4] }, ' '))
  end
  redis.call('ZADD', KEYS[4], stamp(now + liveness * 1000), asking)
  lives(liveness, keep)
  if behind(session(asking), ARGV[7], now, owner) then
    status = 'W '
  end
end
return status .. stamped .. ' ' .. stamp(redis.call('PTTL', KEYS[1])) .. ' ' .. owner .. ' ' .. token .. ' ' .. about

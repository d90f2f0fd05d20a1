-- Takes a free lock that has no waiters; else stands in the queue, once: asking
-- again keeps the place. A free lock with a queue goes to the first living waiter.
--
-- ARGV[1] owner field: session and attempt
-- ARGV[2] how many wait with this attempt
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] lease in milliseconds
-- ARGV[5] what the session says of itself
-- ARGV[6] milliseconds by which the metadata outlives the lease
-- ARGV[7] liveness in milliseconds: for how long the attempt is known to live; 0 does not stand in the queue
-- ARGV[8] what the names of the sessions' channels begin with
-- ARGV[9] nonce: comes back in the message of a grant, which no other client can forge then
-- ARGV[10] how the session is told
-- ARGV[11] if it is there, the session asks to keep the lock while no goroutine has it, unless another one
--         was refused for that reason, not so many microseconds ago
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW TOKEN'              granted, now or by an earlier copy of this request.
--                              Behind the G stand flags of mayLinger in line.lua
--   'Q NOW LEFT HOLDER TOKEN', ABOUT in a second line: held by another, whose lease ends in LEFT
--                              milliseconds, and whose session says ABOUT of itself. Behind the Q stand flags
--                              of line.lua
--   'V NOW'                    expired: came too late
--   'S NOW'                    stale: this attempt is over already

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
local me, lease, keep, token = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6]), nil
local call = redis.call -- looked up once, which saves time
-- The common case: the lock is free, it has no waiters, and what was granted before was released. It does
-- what grant would do, without it: creating functions takes time.
if call('HLEN', KEYS[1]) == 0 then
  local known = call('HMGET', KEYS[2], 't', 'r', 'a', me, 'q')
  -- If there was a queue, it has left a ticket in the metadata.
  if known[1] == known[2] and now > (tonumber(known[1] or 0) or now) and known[3] ~= me and not known[4]
      and (known[1] and not known[5] or call('PTTL', KEYS[3]) == -2) then
    token = stamped
    call('HSET', KEYS[1], me, '1', 't', token, 's', '0', 'd', ARGV[5])
    local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
    if expires ~= 1 then -- the user has no right to PEXPIRE
      call('DEL', KEYS[1])
      return expires
    end
    call('HSET', KEYS[2], 't', token)
    if call('PTTL', KEYS[2]) < lease + keep then
      call('PEXPIRE', KEYS[2], lease + 2 * keep)
    end
  end
end
if token and not ARGV[11] then
  return 'G ' .. stamped .. ' ' .. token
end
if token then
  local may, said = mayLinger(ARGV[11])
  if may then
    redis.call('HSET', KEYS[1], 'k', ARGV[10])
  end
  return 'G' .. said .. ' ' .. stamped .. ' ' .. token
end
local liveness = tonumber(ARGV[7])
local owner, about, kept
owner, token, about, kept = holder()
if owner == me then
  renew(lease, keep)
  return 'G ' .. stamped .. ' ' .. token
end
local left = owner and redis.call('PTTL', KEYS[1])
if left == -1 then
  bad(KEYS[1], owner, redis.call('HGET', KEYS[1], owner), 'a hold that never expires')
end
local last, lost, over = past(me)
if over then
  return onMaster('S ' .. stamped)
end
local added = liveness > 0 and (owner or redis.call('PTTL', KEYS[3]) ~= -2) and stand(now)
if owner then
  if added then
    redis.call('HSET', KEYS[1], 'w', '1')
  end
  if kept and session(owner) ~= session(me) then
    redis.call('HDEL', KEYS[1], 'k')
    want(session(me), ARGV[8], owner, kept, now)
  end
else
  owner, token, about = handOver(session(me), ARGV[8], now, keep, last, lost)
  if not owner then
    token = above(last, now)
    grant(me, ARGV[5], lease, token, keep, lost, redis.call('PTTL', KEYS[3]) ~= -2)
  elseif owner == me then
    renew(lease, keep)
  end
  if not owner or owner == me then
    return 'G ' .. stamped .. ' ' .. token
  end
end
if liveness <= 0 then -- it may have written nothing
  onMaster()
end
left = left or redis.call('PTTL', KEYS[1])
local said = liveness > 0 and flags(session(me), ARGV[8], ARGV[10], now, owner, left) or ''
return table.concat({ 'Q' .. said, stamped, stamp(left), owner, token }, ' ') .. '\n' .. about

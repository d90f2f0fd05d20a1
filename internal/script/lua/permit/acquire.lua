-- Takes permits if enough are free and there are no waiters; else stands in the queue, once: asking again
-- keeps the place.
--
-- ARGV[1] to [10] internal/script/lua/lock/acquire.lua, but [2] is how many permits; ALL excludes all others
-- ARGV[11] how many permits there are, unless Redis has another number
-- ARGV[12] a holder of this session, that is to go on instead if there are no waiters; or ''
-- ARGV[13] ARGV[11] of lock/acquire.lua
--
-- Reply, with the Redis time NOW in microseconds, and behind it 'OWNER TOKEN LEASE' of each other attempt of
-- this session that was served:
--   'G NOW TOKEN', 'V NOW' or 'S NOW', as of lock/acquire.lua
--   'K NOW'        ARGV[12] goes on, with the lease of ARGV[4]
--   'Q NOW LEFT HOLDER TOKEN', ABOUT in a second line: not yet, or not at all without a liveness. HOLDER is
--                  one of those that have permits ('-' if none has), whose session says ABOUT of itself. The
--                  first lease ends in LEFT milliseconds (-1: there is none). Behind the Q stand flags of
--                  line.lua
--   'N NOW LIMIT'  never: more are wanted than LIMIT, which is how many there are, or another attempt has
--                  said LIMIT for ARGV[11]

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
local me, n, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local keep, liveness = tonumber(ARGV[6]), tonumber(ARGV[7])
local call, token = redis.call, nil -- looked up once, which saves time
local known = call('HMGET', KEYS[2], 'n', me, 'i', 't', 'q')
-- If there was a queue, it has left a ticket in the metadata.
local queue = (known[5] or not known[4]) and call('PTTL', KEYS[3]) ~= -2
-- The common case: there are no waiters, no lease is over, and enough permits are free. It does what expire
-- and allot would do, without them: creating functions takes time.
if not queue and ARGV[12] == '' and not known[2] and (not known[1] or known[1] == ARGV[11] or known[3])
    and string.find(known[1] or ARGV[11], '^%d+$') and now > (tonumber(known[4] or 0) or now) then
  local lasts, limit, inUse = call('PTTL', KEYS[1]), known[1] or ARGV[11], nil
  if lasts == -2 then
    inUse = call('PTTL', KEYS[6]) == -2 and 0
  elseif #call('ZRANGEBYSCORE', KEYS[1], '-inf', stamped, 'LIMIT', 0, 1) == 0 then
    local has = call('HMGET', KEYS[6], me, 'u')
    inUse = not has[1] and has[2] and string.find(has[2], '^%d+$') and tonumber(has[2])
  end
  if inUse and inUse + n <= tonumber(limit) then
    token = stamped
    call('HSET', KEYS[2], 't', n == ALL and string.format('%.0f', now + BLOCK - 1) or token, 'n', limit)
    call('HSET', KEYS[6], me, ARGV[2] .. ' ' .. token .. ' ' .. ARGV[5],
      'u', string.format('%.0f', inUse + n))
    call('ZADD', KEYS[1], string.format('%.0f', now + lease * 1000), me)
    if lasts < lease then
      call('PEXPIRE', KEYS[1], 2 * lease)
      call('PEXPIRE', KEYS[6], 2 * lease)
    end
    if call('PTTL', KEYS[2]) < lease + keep then
      call('PEXPIRE', KEYS[2], lease + 2 * keep)
    end
  end
end
if token and not ARGV[13] then
  return 'G ' .. stamped .. ' ' .. token
end
if token then
  local may, said = mayLinger(ARGV[13])
  if may then
    call('HSET', KEYS[6], me, ARGV[2] .. ' ' .. token .. '+' .. ARGV[10] .. ' ' .. ARGV[5], 'k', '1')
  end
  return 'G' .. said .. ' ' .. stamped .. ' ' .. token
end
queue = redis.call('PTTL', KEYS[3]) ~= -2 -- whatever is left of the metadata
if ARGV[12] ~= '' and not queue then
  local _, _, _, _, left = holding(ARGV[12], now)
  if left then
    prolong(ARGV[12], math.max(lease, left), now, keep)
    return 'K ' .. stamped
  end
end
local _, its, _, _, rest = holding(me, now)
if rest then
  prolong(me, math.max(lease, rest), now, keep)
  return 'G ' .. stamped .. ' ' .. its
end
if known[2] then
  return onMaster('S ' .. stamped, KEYS[2])
end
local limit = known[1] and whole(KEYS[2], 'n', known[1]) or tonumber(ARGV[11])
if n > limit or limit ~= tonumber(ARGV[11]) and not known[3] then -- what SetLimit has set goes for all
  if queue then
    vacate(me, ARGV[8], now) -- it has been in the queue since before the limit was set
  end
  return onMaster('N ' .. stamped .. ' ' .. stamp(limit), KEYS[2])
end
local over = expire(now)
if not queue and n <= limit - used() then
  token = allot(me, n, ARGV[5], lease, now, keep, limit)
  settle(over)
  return 'G ' .. stamped .. ' ' .. token
end
if liveness > 0 and stand(now) then
  redis.call('HSET', KEYS[2], 'n', stamp(limit))
end
local served, changed = serve(session(me), ARGV[8], now, keep, limit)
settle(over)
if changed then
  handOnPermits(ARGV[8], now)
end
_, token = holding(me)
if token then
  prolong(me, lease, now, keep)
  served = string.gsub(served, ' ' .. string.gsub(me, '%-', '%%-') .. ' %d+ %d+', '')
  return 'G ' .. stamped .. ' ' .. token .. served
end
if redis.call('HGET', KEYS[6], 'k') then
  wantAll(session(me), ARGV[8], now)
end
if liveness <= 0 then -- it may have written nothing
  onMaster(nil, KEYS[2])
end
local owner, left = firstEnd(now)
local _, token, about = holding(owner or '')
local said = liveness > 0 and flags(session(me), ARGV[8], ARGV[10], now, owner) or ''
local has = { 'Q' .. said, stamped, stamp(left), owner or '-', token or '0' }
return table.concat(has, ' ') .. served .. '\n' .. (about or '')

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
local asking, n, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local keep, liveness = tonumber(ARGV[6]), tonumber(ARGV[7])
local known = redis.call('HMGET', KEYS[2], 'n', asking, 'i', 't', 'q')
-- If there was a queue, it has left a ticket in the metadata.
local queue = (known[5] or not known[4]) and redis.call('PTTL', KEYS[3]) ~= -2
if ARGV[12] ~= '' and not queue then
  local _, _, _, _, left = holding(ARGV[12], now)
  if left then
    prolong(ARGV[12], math.max(lease, left), now, keep)
    return 'K ' .. stamped
  end
end
local lasts = redis.call('PTTL', KEYS[1])
local has = lasts == -2 and {} or redis.call('HMGET', KEYS[6], asking, 'u')
if has[1] then
  local _, token, _, _, left = holding(asking, now)
  if left then
    prolong(asking, math.max(lease, left), now, keep)
    return 'G ' .. stamped .. ' ' .. token
  end
end
if known[2] then
  return 'S ' .. stamped
end
local limit = known[1] and whole(KEYS[2], 'n', known[1]) or tonumber(ARGV[11])
if n > limit or limit ~= tonumber(ARGV[11]) and not known[3] then -- what SetLimit has set goes for all
  if queue then
    leave(asking) -- it has stood there since before the limit was set
  end
  return 'N ' .. stamped .. ' ' .. stamp(limit)
end
local over, token = expire(now, lasts), nil
local inUse = #over > 0 and used() or whole(KEYS[6], 'u', has[2])
if not queue and n <= limit - inUse then
  token = allot(asking, n, ARGV[5], lease, now, keep, limit, inUse, known[4], lasts)
end
if token and #over > 0 then
  settle(over)
end
if token and not ARGV[13] then
  return 'G ' .. stamped .. ' ' .. token
end
if token then
  local may, said = mayLinger(ARGV[13])
  if may then
    redis.call('HSET', KEYS[6], asking, n .. ' ' .. token .. '+' .. ARGV[10] .. ' ' .. ARGV[5], 'k', '1')
  end
  return 'G' .. said .. ' ' .. stamped .. ' ' .. token
end
if liveness > 0 and stand(now) then
  redis.call('HSET', KEYS[2], 'n', stamp(limit))
end
local served = serve(session(asking), ARGV[8], now, keep, limit)
settle(over)
local _, token = holding(asking)
if token then
  prolong(asking, lease, now, keep)
  served = string.gsub(served, ' ' .. string.gsub(asking, '%-', '%%-') .. ' %d+ %d+', '')
  return 'G ' .. stamped .. ' ' .. token .. served
end
if redis.call('HGET', KEYS[6], 'k') then
  wantAll(session(asking), ARGV[8], now)
end
local owner, ends = unpack(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
local _, its, about = holding(owner or '')
local left = owner and stamp(math.max(0, math.ceil((ends - now) / 1000))) or '-1'
local said = liveness > 0 and flags(session(asking), ARGV[8], ARGV[10], now, owner) or ''
local has = { 'Q' .. said, stamped, left, owner or '-', its or '0' }
return table.concat(has, ' ') .. served .. '\n' .. (about or '')

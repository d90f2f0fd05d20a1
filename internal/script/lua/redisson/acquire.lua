-- Takes the lock if it is free.
--
-- Sending the request again is harmless. A holder gets its token again, and its lease lasts for at least
-- ARGV[3] ms from now.
--
-- KEYS      see internal/script/lua/redisson.lua
-- ARGV[1]   owner field, SESSION:ATTEMPT
-- ARGV[2]   Redis time in µs after which this request is void
-- ARGV[3]   lease in ms
-- ARGV[4]   holder info, see internal/script/lua/lock.lua
-- ARGV[5]   minimum time in ms for which the metadata outlives the lease
-- ARGV[6]   the session's channel, if only this server can have subscribers to it; otherwise ''
-- ARGV[7]   CHANNEL
-- ARGV[8]   HOW
-- ARGV[9]   value that a missing token counter counts as, or '' if the script must not create the counter
--
-- Replies (NOW is the Redis time in µs)
--   G NOW TOKEN             granted, by this request or an earlier copy of it
--   Q NOW LEFT OWNER TOKEN  held by OWNER, whose lease ends in LEFT ms. The second line of the reply is the
--                           holder info of OWNER. TOKEN is 0 if a JVM holds the lock. A P after the Q means
--                           that releases are published by SPUBLISH. A D after the Q or the P means that
--                           this server has no subscriber to the channel in ARGV[6]
--   V NOW                   void, because the request arrived too late
--   S NOW                   stale, because this attempt has already ended

local now, stamped = clock()
if now > tonumber(ARGV[2]) then
  return 'V ' .. stamped
end
local owner, token, about = holder()
if owner and owner ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    failDamaged(KEYS[1], owner, redis.call('HGET', KEYS[1], owner), 'a hold that never expires')
  end
  onMaster()
  local unsubscribed = ARGV[6] ~= '' and not subscribed(ARGV[6])
  local status = 'Q' .. (sharding(ARGV[8], ARGV[7]) and 'P' or '') .. (unsubscribed and 'D' or '')
  return table.concat({ status, stamped, toString(left), owner, token }, ' ') .. '\n' .. about
end
local lease, keep = tonumber(ARGV[3]), tonumber(ARGV[5])
if owner then
  renew(lease, keep)
  return 'G ' .. stamped .. ' ' .. token
end
local last, lost, over = readMetadata(ARGV[1])
if over then
  return onMaster('S ' .. stamped)
end
local known, counter = last > 0, redis.call('GET', KEYS[3]) or ARGV[9] ~= '' and ARGV[9]
if counter then
  last = math.max(last, readNumber(KEYS[3], '', counter))
end
token = nextToken(last, now)
-- Without a last token, the metadata has no record of earlier grants. All earlier tokens then count as lost,
-- because a session may still believe that it has one of these grants.
lost = lost or not known and token - 1
grant(ARGV[1], ARGV[4], lease, token, keep, lost)
if counter then
  redis.call('SET', KEYS[3], token)
end
return 'G ' .. stamped .. ' ' .. token

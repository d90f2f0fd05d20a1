-- Takes a free lock that is shared with Redisson, once for each attempt. As lock/acquire.lua, but that its
-- tokens also follow Redisson's counter, so that there is no common case.
--
-- ARGV[1] to [9] internal/script/lua/lock/acquire.lua
-- ARGV[10] '1' if this server knows all that listen to the session's channel
-- ARGV[11] CHANNEL
-- ARGV[12] HOW
-- ARGV[13] what KEYS[3] begins at; '': where it does not exist, it is not made
--
-- Reply: as of lock/acquire.lua, without flags behind the G. Behind the Q, a 'P' if a release is published by
--        SPUBLISH, and a 'D' if this server knows of nobody that listens to the channel of the asking session

local now, stamped = clock()
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamped
end
local owner, token, about = holder()
if owner and owner ~= ARGV[1] then
  onMaster()
  local deaf = ARGV[10] == '1' and not subscribed(ARGV[8] .. string.match(ARGV[1], '^[^:]*'), false, true)
  local status = 'Q' .. (sharding(ARGV[12], ARGV[11]) and 'P' or '') .. (deaf and 'D' or '')
  local left = stamp(redis.call('PTTL', KEYS[1]))
  return table.concat({ status, stamped, left, owner, token }, ' ') .. '\n' .. about
end
local lease, keep = tonumber(ARGV[4]), tonumber(ARGV[6])
if owner then
  renew(lease, keep)
else
  local last, lost, over = past(ARGV[1])
  if over then
    return onMaster('S ' .. stamped)
  end
  local counter = redis.call('GET', KEYS[3]) or ARGV[13] ~= '' and ARGV[13]
  if counter then
    last = math.max(last, whole(KEYS[3], '', counter))
  end
  token = above(last, now)
  grant(ARGV[1], ARGV[5], lease, token, keep, lost)
  if counter then
    redis.call('SET', KEYS[3], stamp(tonumber(token) + BLOCK - 1))
  end
end
return 'G ' .. stamped .. ' ' .. token

-- Takes a free lock, once for each attempt.
--
-- KEYS[1] the lock's hash: owner field -> hold count, t -> token, s -> number of
--         the last change of the count, d -> what the holder's session says of itself
-- KEYS[2] the lock's memory: t -> last token granted, r -> last token released,
--         l -> last token lost, a -> last owner field that released, and for each
--         attempt that was given up with a request under way, its owner field ->
--         Redis time in microseconds until which that request could arrive
-- KEYS[3] Redisson's token counter, where the lock is shared with Redisson
-- ARGV[1] owner field: session and attempt
-- ARGV[2] lease in milliseconds
-- ARGV[3] Redis time in microseconds after which this request is void
-- ARGV[4] what the session says of itself
-- ARGV[5] milliseconds by which the memory outlives the lease
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW TOKEN'        granted, now or by an earlier copy of this request
--   'H NOW PTTL HOLDER TOKEN ABOUT'  held by another for PTTL milliseconds (-1: no
--                        expiry), whose session says ABOUT of itself
--   'V NOW'              void: came too late
--   'S NOW'              stale: this attempt is over already

local owner = ARGV[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local stamp = string.format('%.0f', now)
if now > tonumber(ARGV[3]) then
  return 'V ' .. stamp
end

local outlive = string.format('%.0f', tonumber(ARGV[2]) + tonumber(ARGV[5]))
local held = redis.call('HGETALL', KEYS[1])
local memory = redis.call('HMGET', KEYS[2], 't', 'r', 'a', owner)

if #held > 0 then
  local mine, holder, token, about = false, '', '0', ''
  for i = 1, #held, 2 do
    local field = held[i]
    if field == owner then
      mine = true
    elseif field == 't' then
      token = held[i + 1]
    elseif field == 'd' then
      about = held[i + 1]
    elseif field ~= 's' then
      holder = field
    end
  end
  local left = redis.call('PTTL', KEYS[1])
  if not mine then
    return 'H ' .. stamp .. ' ' .. left .. ' ' .. holder .. ' ' .. token .. ' ' .. about
  end
  if left < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[2], outlive)
  end
  return 'G ' .. stamp .. ' ' .. token
end

if memory[3] == owner or memory[4] then
  return 'S ' .. stamp
end

local token = now
if memory[1] then
  token = math.max(token, tonumber(memory[1]) + 1)
end
if KEYS[3] then
  token = math.max(token, tonumber(redis.call('GET', KEYS[3]) or 0) + 1)
end
token = string.format('%.0f', token)

redis.call('HSET', KEYS[1], owner, '1', 't', token, 's', '0', 'd', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if memory[1] and memory[1] ~= memory[2] then
  redis.call('HSET', KEYS[2], 't', token, 'l', memory[1])
else
  redis.call('HSET', KEYS[2], 't', token)
end
redis.call('PEXPIRE', KEYS[2], outlive)
if KEYS[3] then
  redis.call('SET', KEYS[3], token)
end
return 'G ' .. stamp .. ' ' .. token

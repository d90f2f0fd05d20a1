-- One server's vote for an attempt: takes the lock here if it is free, and accepts
-- the attempt's token if it is above the one that is stored.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/protocol/lua/shared.lua
-- ARGV[1] owner field: session and attempt
-- ARGV[2] lease in milliseconds
-- ARGV[3] Redis time in microseconds after which this request has expired
-- ARGV[4] what the session says of itself
-- ARGV[5] milliseconds by which the metadata outlives the lease
-- ARGV[6] the proposed token
-- ARGV[7] the last token of the block that the attempt reserves, from the proposed one on
-- ARGV[8] channel
-- ARGV[9] '0': if refused, it gives up. 'w': if refused, it waits, so the holder's release is to be published.
--         '1': the attempt holds the lock on a majority without this server, and joins it here. What it may have
--         used is stored then, whatever it proposed
-- ARGV[10] a nonce. The first that brings one to a grant has the release's message carry it, as a proof that it is Redis' own
--
-- Reply, always with the Redis time NOW in microseconds:
--   'G NOW STORED +'     granted, now or by an earlier copy, and the token accepted
--   'G NOW STORED -'     granted, but STORED, which is not below the token, is stored
--   'H NOW PTTL HOLDER TOKEN NONCE ABOUT'  held by another, as in the reentrant lock's. PTTL is a second at most where the
--                        release may not be published. NONCE is what its message will carry; '-' where it is not asked for, or not known
--   'V NOW'              expired: came too late
--   'S NOW'              stale: this attempt is over already
--
-- Generated from multilock/lua/redlock_lock.lua: edit that, and run go generate ./...

local time = redis.call('TIME')
local now = string.format('%d%06d', time[1], time[2])
if tonumber(now) > tonumber(ARGV[3]) then
  return 'V ' .. now
end

local far = now + 86400e6 -- a token above it is not one of ours: a day ahead of the server's clock

-- vote grants the lock, unless something odd is stored. The block of a former grant, of which the session does not use any more, is not in
-- the way.
local function vote(former, first)
  local metadata = redis.call('HMGET', KEYS[2], 't', 'a', ARGV[1], 'b')
  if metadata[2] == ARGV[1] or metadata[3] then -- a late copy
    return 'S ' .. now
  end
  local last, stored, answer = tonumber(metadata[1] or 0), nil, ' -'
  if not (last and last <= far and (not metadata[1] or string.find(metadata[1], '^%d+$'))) then
    return
  end
  redis.call('HSET', KEYS[1], ARGV[1], '1', 't', ARGV[6], 's', '0', 'd', ARGV[4])
  if ARGV[9] == '1' then -- it was lost here, and with it the note that others wait
    redis.call('HSET', KEYS[1], 'w', ARGV[10])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if former and metadata[4] == former then
    last = tonumber(first)
  end
  if tonumber(ARGV[9] == '1' and ARGV[7] or ARGV[6]) > last then
    stored, answer = ARGV[7], ' +'
    redis.call('HSET', KEYS[2], 't', stored, 'b', ARGV[1])
  end
  if redis.call('PTTL', KEYS[2]) < ARGV[2] + ARGV[5] then -- set to more, so as not to be set each time
    redis.call('PEXPIRE', KEYS[2], ARGV[2] + 2 * ARGV[5])
  end
  return 'G ' .. now .. ' ' .. (stored or string.format('%.0f', last)) .. answer
end

if redis.call('HLEN', KEYS[1]) == 0 then
  local reply = vote()
  if reply then
    return reply
  end
end

-- succeeds: both attempts are of one session, which asks for a lock with one attempt
-- after another: the earlier one is over, and its release still under way.
local function succeeds(owner, earlier)
  local session, number = string.match(owner, '^(.*):(%d+)$')
  local other, before = string.match(earlier, '^(.*):(%d+)$')
  return session and session == other and tonumber(number) > tonumber(before)
end

local function stamp(number)
  return string.format('%.0f', number)
end

-- MOST is the highest token that is taken from a key: numbers are exact up to 2^53, and it must leave room to add to.
local MOST = 9e15

-- sound is a value as a number; nil if it is not a whole one from 0 to most. Of what Lockline wrote, all are.
local function sound(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MOST) and number or nil
end

-- bad ends the script with an error that Refusal of refusal.go reads. Nothing may have been written before.
local function bad(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c) return string.format('=%02X', string.byte(c)) end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) .. ',' .. plain(why) .. ' .', 0)
end

-- whole is what a field has, as a number; 0 if there is no such field. For a key without fields, field is ''.
local function whole(key, field, value, most)
  if not value then
    return 0
  end
  local number = sound(value, most)
  if not number then
    bad(key, field, value, sound(value) and 'more than a day above the clock of its server' or 'not a whole number from 0 to ' .. stamp(MOST))
  end
  return number
end

-- holder returns owner, token and what the owner's session says of itself; nil
-- if the lock is free. What cannot be a grant of ours is an error, unless any will do.
local function holder(any)
  local held = redis.call('HGETALL', KEYS[1])
  local about, owner, other, count, token = ''
  for i = 1, #held, 2 do
    local field, value = held[i], held[i + 1]
    if field == 't' then
      token = value
    elseif field == 'd' then
      about = value
    elseif field ~= 's' and field ~= 'w' then
      other = owner
      owner, count = field, value
    end
  end
  if owner and token and not any then -- a JVM's has no token
    whole(KEYS[1], 't', token)
    if other then
      bad(KEYS[1], owner, count, 'a second owner beside "' .. other .. '"')
    end
  end
  return owner, token or '0', about
end

local owner, token, about = holder()
if owner and owner ~= ARGV[1] and not succeeds(ARGV[1], owner) then
  local left, nonce = redis.call('PTTL', KEYS[1]), ARGV[9] == 'w' and redis.call('HGET', KEYS[1], 'w')
  if ARGV[9] == 'w' and not nonce then
    if redis.pcall('HSET', KEYS[1], 'w', ARGV[10]) == 1 then
      nonce = ARGV[10]
    else
      left = math.min(left, 1000) -- not possible while short of memory: waiters have to look
    end
  end
  return table.concat({ 'H', now, stamp(left), owner, token, nonce or '-', about }, ' ')
end
local metadata = redis.call('HMGET', KEYS[2], 't', 'b')
local stored = whole(KEYS[2], 't', metadata[1], far)

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- renew makes the lease of a lock that is held at least ms long.
local function renew(ms, keep)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], ms)
    outlive(ms + keep, keep)
  end
end

if owner == ARGV[1] then -- by an earlier copy of this request
  renew(tonumber(ARGV[2]), tonumber(ARGV[5]))
  return 'G ' .. now .. ' ' .. stamp(stored) .. (metadata[2] == ARGV[1] and ' +' or ' -')
end
if owner then
  local waited = redis.call('HGET', KEYS[1], 'w')
  redis.call('DEL', KEYS[1])
  if waited then
    redis.call('PUBLISH', ARGV[8], token)
  end
end
return vote(owner, token)

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
--
-- Generated from multilock/lua/redlock_release.lua: edit that, and run go generate ./...

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

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- tombstone notes that an attempt is over though a copy of its request may arrive
-- until the Redis time late, and forgets the tombstones whose time has passed, or is none.
local function tombstone(owner, late, keep)
  if late == '0' then
    return
  end
  local now, all = clock(), redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and (tonumber(all[i + 1]) or 0) < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
  if tonumber(late) >= now then
    redis.call('HSET', KEYS[2], owner, late)
    outlive(keep, keep)
  end
end

tombstone(ARGV[1], ARGV[5], tonumber(ARGV[4]))
return reply

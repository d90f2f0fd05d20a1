-- Constants and functions for the scripts of all kinds. Package script adds to each script the functions
-- that it uses, behind the common case if possible, because creating a function takes time.

-- BLOCK is the number of tokens that a grant reserves. Package protocol has it as Block, in answer.go.
local BLOCK = 1000

-- ALL is the number of permits of a holder that excludes all others. Package protocol has it as All.
local ALL = 1000000000

-- FIRST_LEASE is the longest lease, in milliseconds, of a lock that is handed over. It is short because the
-- process of the new holder may be stopped. A live one renews the lease long before its end. Package protocol
-- has it as FirstLease.
local FIRST_LEASE = 2000

-- SPARE_DELAY is the time in ms after the end of a lease at which the second session in the queue sends its
-- request. The first one does so at once. Package protocol has it as SpareDelay.
local SPARE_DELAY = 250

-- BATCH bounds the number of living waiters that one request skips, of attempts that one command names, and
-- of expired leases that one request removes. The other expired leases count until the next request.
local BATCH = 1000

local function toString(number)
  return string.format('%.0f', number)
end

-- MAX_NUMBER is the highest token or Redis time (in µs) that is accepted from a key. It is below 2^53, up to
-- which Lua's numbers are exact, so that a token or a time can be added to it.
local MAX_NUMBER = 9e15

-- parseNumber returns a value as a number. It returns nil if the value is not a whole number from 0 to most,
-- which Lockline never writes.
local function parseNumber(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MAX_NUMBER) and number or nil
end

-- subscribed reports whether this server has a subscriber to a channel. Without the right to find out, it
-- returns `unknown`.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
end

-- sharding reports whether messages on a channel are published by SPUBLISH, for clients that SSUBSCRIBE. If
-- how is 'classic', they never are. If it is 'auto', they are if the server has both commands, and the user
-- may use them. So sessions whose users have the same rights get the same result.
local function sharding(how, name)
  -- The commands have all arguments, because Redis with the security updates of 2026 checks their number.
  local function may(...)
    -- Before Redis 7, acl_check_cmd does not exist, and the two commands do not, either.
    local known, allowed = pcall(redis.acl_check_cmd, ...)
    return known and allowed
  end
  return how == 'auto' and may('SSUBSCRIBE', name) and may('SPUBLISH', name, '')
end

-- failDamaged ends the script with an error that refusal in package wire reads. Nothing may have been written
-- before.
local function failDamaged(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
      return string.format('=%02X', string.byte(c))
    end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
    ',' .. plain(why) .. ' .', 0)
end

-- failForeign ends the script because this version of Lockline has not written the hash KEYS[1]. The hash has
-- this field, but not the field named `lacks`, which every hash of this sort has. sort is 'lock' or 'latch'.
local function failForeign(sort, lacks, field, value)
  failDamaged(KEYS[1], field, value, 'foreign ' .. sort .. ' ' .. lacks)
end

-- readNumber returns the value of a field as a number, or 0 if the field is missing. For a key without
-- fields, field is ''.
local function readNumber(key, field, value)
  return not value and 0 or parseNumber(value)
    or failDamaged(key, field, value, 'not a whole number from 0 to ' .. toString(MAX_NUMBER))
end

-- onMaster returns the reply of a script that has written nothing. If this server is a replica, the script
-- ends with an error instead, because the data of a replica may be old and must not decide anything. A
-- replica refuses HDEL before it runs it. On a master, HDEL of a field that never exists changes nothing. A
-- master may refuse HDEL for other reasons, such as a full disk. The reply of the script is valid then, too.
-- The key must be a hash, or not exist. If key is nil, KEYS[1] is used.
local function onMaster(reply, key)
  key = key or KEYS[1]
  local refused = redis.pcall('HDEL', key, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
    redis.call('HDEL', key, '') -- raises the error in words for which go-redis closes the connection
  end
  return reply
end

-- lookOnMaster is onMaster for scripts of users who may only look. It does not call HDEL if the user has no
-- right to it, since Redis would log that. Redis 6.2 still logs it, because scripts cannot check rights
-- there.
local function lookOnMaster(key)
  local known, allowed = pcall(redis.acl_check_cmd, 'HDEL', key or KEYS[1], '')
  if allowed or not known then
    onMaster(nil, key)
  end
end

-- clock returns the Redis time in microseconds, as a number and as toString returns it.
local function clock()
  local time = redis.call('TIME')
  -- The first is faster.
  local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
  return tonumber(stamped), stamped
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- channel returns the name of the channel on which a session is notified. The name of a sharded channel has
-- the part of the lock's key behind the prefix, so it is in the slot of the lock.
local function channel(channels, of, sharded)
  return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end

-- map returns the fields of a hash as a table. It returns nil if the hash is empty or missing, and the reply
-- of cjson lacks the field then.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

-- list returns a sorted set, each member with its score behind it. It returns nil if the set is empty,
-- because cjson would encode an empty list as an object.
local function list(key)
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  return all[1] and all
end

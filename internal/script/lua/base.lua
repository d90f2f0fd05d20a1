-- Constants and functions for the scripts of all kinds. Package script copies the functions that a script
-- uses into this script. If possible, it places them after the code of the common case, because creating a
-- function takes time.

-- BLOCK is the number of tokens that a grant reserves. Package protocol has it as Block, in answer.go.
local BLOCK = 1000

-- ALL is the number of permits of a holder that excludes all others. Package protocol has it as All.
local ALL = 1000000000

-- FIRST_LEASE is the longest lease, in milliseconds, that a holder gets when a lock is handed over to it. It
-- is short because the new holder's process may be stopped. A running process renews the lease long before
-- its end. Package protocol has it as FirstLease.
local FIRST_LEASE = 2000

-- When a lease ends, the first session in the queue sends a request at once. The second session sends its
-- request SPARE_DELAY ms later. Package protocol has it as SpareDelay.
local SPARE_DELAY = 250

-- BATCH is the maximum number of attempts that one command names, and of expired leases that one request
-- removes. Further expired leases count as held until a later request removes them. The function lookUp also
-- limits by BATCH how many living waiters a request skips.
local BATCH = 1000

local function toString(number)
  return string.format('%.0f', number)
end

-- MAX_NUMBER is the highest token or Redis time (in µs) that a script accepts from a key. Lua's numbers are
-- exact up to 2^53. MAX_NUMBER is lower, so that the script can increase such a token or time.
local MAX_NUMBER = 9e15

-- parseNumber converts a value to a number. It returns nil if the value is not a whole number from 0 to
-- `most`, because Lockline never writes such a value. If most is nil, MAX_NUMBER is used.
local function parseNumber(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MAX_NUMBER) and number or nil
end

-- subscribed reports whether this server has a subscriber to a channel. If the user may not call PUBSUB, it
-- returns `unknown`.
local function subscribed(name, sharded, unknown)
  local count = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', name)
  if count.err then
    return unknown
  end
  return count[2] > 0
end

-- sharding reports whether messages on a channel are published by SPUBLISH, for clients that subscribe by
-- SSUBSCRIBE. If `how` is 'classic', it returns false. If `how` is 'auto', it returns true if the server has
-- both commands, and the user may call both. So sessions whose users have the same rights get the same
-- result.
local function sharding(how, name)
  -- Each command is passed with all of its arguments, because Redis with the security updates of 2026 checks
  -- the number of arguments.
  local function may(...)
    -- Before Redis 7, neither acl_check_cmd nor the two commands exist.
    local known, allowed = pcall(redis.acl_check_cmd, ...)
    return known and allowed
  end
  return how == 'auto' and may('SSUBSCRIBE', name) and may('SPUBLISH', name, '')
end

-- failDamaged ends the script with an error, which the function refusal in package wire parses. The script
-- must not have written anything before.
local function failDamaged(key, field, value, why)
  local function plain(text) -- a server may not send every byte of an error
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
      return string.format('=%02X', string.byte(c))
    end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
    ',' .. plain(why) .. ' .', 0)
end

-- failForeign ends the script with an error, because this version of Lockline did not write the hash in
-- KEYS[1]. `lacks` is the name of a field that every hash of this sort has, and this hash does not. `field`
-- and `value` are the name and the value of one field of the hash. `sort` is 'lock' or 'latch'.
local function failForeign(sort, lacks, field, value)
  failDamaged(KEYS[1], field, value, 'foreign ' .. sort .. ' ' .. lacks)
end

-- readNumber returns the value of a field as a number, or 0 if the field is missing. If the key is not a
-- hash, field is ''. If the value is not valid, the script ends with an error.
local function readNumber(key, field, value)
  return not value and 0 or parseNumber(value)
    or failDamaged(key, field, value, 'not a whole number from 0 to ' .. toString(MAX_NUMBER))
end

-- onMaster returns `reply` if this server is a master. A script that may have written nothing calls onMaster.
-- If this server is a replica, the script ends with an error instead, because the data of a replica may be
-- old and must not decide anything. To find out, onMaster calls HDEL, which a replica refuses with READONLY.
-- On a master, HDEL of a field that never exists changes nothing. A master may refuse HDEL for other reasons,
-- such as a full disk, but the reply is valid nevertheless. The key must be a hash, or not exist. If key is
-- nil, KEYS[1] is used.
local function onMaster(reply, key)
  key = key or KEYS[1]
  local refused = redis.pcall('HDEL', key, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
    redis.call('HDEL', key, '') -- raises an error with the text for which go-redis closes the connection
  end
  return reply
end

-- lookOnMaster does the same as onMaster, for scripts that a user with read-only rights may run. If the user
-- may not call HDEL, lookOnMaster does not call it, because Redis would log the refusal. In Redis 6.2,
-- scripts cannot check rights, so it calls HDEL there in any case.
local function lookOnMaster(key)
  local known, allowed = pcall(redis.acl_check_cmd, 'HDEL', key or KEYS[1], '')
  if allowed or not known then
    onMaster(nil, key)
  end
end

-- clock returns the Redis time in microseconds, as a number and as a string.
local function clock()
  local time = redis.call('TIME')
  -- Joining the strings is faster, but only correct if the microseconds have six digits.
  local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
  return tonumber(stamped), stamped
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- channel returns the name of the channel on which a session is notified. The name of a sharded channel
-- contains the lock's key without its prefix, so the channel is in the slot of the lock.
local function channel(channels, of, sharded)
  return channels .. (sharded and string.sub(KEYS[1], #channels - 1) .. ':' or '') .. of
end

-- map returns the fields of a hash as a table. It returns nil if the hash is missing, so that cjson leaves it
-- out of the reply.
local function map(key)
  local flat, m = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    m[flat[i]] = flat[i + 1]
  end
  return next(m) and m
end

-- list returns the members of a sorted set, each followed by its score. It returns nil if the set is empty,
-- because cjson would encode an empty list as an object.
local function list(key)
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  return all[1] and all
end

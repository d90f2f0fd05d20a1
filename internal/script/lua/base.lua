-- Constants and functions for the scripts of all kinds. Into each script, package script copies the constants
-- and functions that this script uses. If possible, it places the functions after the code of the common
-- case, because creating a function takes time.

-- BLOCK is the number of tokens that a grant of ALL permits reserves. Any other grant has only one token.
-- Package protocol has BLOCK as Block, in answer.go.
local BLOCK = 1000

-- ALL is the number of permits of a holder that excludes all others. The holder of a lock without permits
-- counts as a holder of ALL permits. Package protocol has ALL as All.
local ALL = 1000000000

-- FIRST_LEASE is the longest lease, in milliseconds, that a holder gets when a lock is handed over to it. It
-- is short because the new holder's process may be stopped, and then the other waiters have to wait until
-- this lease ends. A running process renews the lease long before its end. Package protocol has
-- FIRST_LEASE as FirstLease.
local FIRST_LEASE = 2000

-- When a lease ends, the first session in the queue sends a request at once. The second session sends its
-- request SPARE_DELAY ms later, in case the process of the first one is frozen. Package protocol has
-- SPARE_DELAY as SpareDelay.
local SPARE_DELAY = 250

-- BATCH is the maximum number of attempts that one command names. The function dropExpired takes back the
-- permits of at most BATCH holders whose leases have ended, and leaves the rest to later requests. The
-- function lookUp stops after it has read 2 * BATCH attempts that stay in the queue.
local BATCH = 1000

-- toString formats a whole number without an exponent. Scripts pass large numbers to commands as strings,
-- because Redis 7.2.0 to 7.2.4 writes numbers such as 1e8 with an exponent, which no command accepts.
local function toString(number)
  return string.format('%.0f', number)
end

-- MAX_NUMBER is the highest token or Redis time (in µs) that a script accepts from a key. Lua's numbers are
-- exact up to 2^53. MAX_NUMBER is lower, so that a token or time stays exact when a script increases it.
local MAX_NUMBER = 9e15

-- parseNumber converts a string to a number. It returns nil if the string is not a whole number from 0 to
-- `most`. If `most` is nil, MAX_NUMBER takes its place.
local function parseNumber(value, most)
  local number = #value < 17 and string.find(value, '^%d+$') and tonumber(value)
  return number and number <= (most or MAX_NUMBER) and number or nil
end

-- subscribed reports whether this server has a subscriber to a channel. If the user may not call PUBSUB, it
-- returns true.
local function subscribed(name)
  local count = redis.pcall('PUBSUB', 'NUMSUB', name)
  return count.err ~= nil or count[2] > 0
end

-- sharding reports whether sharded pub/sub (SPUBLISH and SSUBSCRIBE) can be used for the channel `name`. If
-- `how` is 'classic', the result is always false. If `how` is 'auto', the result is true if the server has
-- both commands, and the session's Redis user may call both for this channel. So all sessions whose users
-- have the same rights get the same result.
local function sharding(how, name)
  -- Each command is passed with all of its arguments. Since the security updates of 2026, acl_check_cmd fails
  -- if the number of arguments is wrong.
  local function may(...)
    -- Before Redis 7, neither acl_check_cmd nor the two commands exist. Then `known` is false.
    local known, allowed = pcall(redis.acl_check_cmd, ...)
    return known and allowed
  end
  return how == 'auto' and may('SSUBSCRIBE', name) and may('SPUBLISH', name, '')
end

-- failDamaged ends the script with an error, because the field of the key has a value that Lockline cannot
-- have written. The function refusal in package wire parses the error. If the key is not a hash, field is ''.
-- A script should check its values before its first write, because Redis does not undo the writes of a script
-- that fails.
local function failDamaged(key, field, value, why)
  local function plain(text) -- escapes the bytes that a server may change in the text of an error
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c)
      return string.format('=%02X', string.byte(c))
    end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) ..
    ',' .. plain(why) .. ' .', 0)
end

-- failForeign ends the script with the error that this version of Lockline did not write the hash in KEYS[1].
-- `sort` is 'lock' or 'latch'. `lacks` is the name of the missing field, by which a script recognizes a hash
-- of this sort. `field` and `value` are the name and the value of a field that the hash has.
local function failForeign(sort, lacks, field, value)
  failDamaged(KEYS[1], field, value, 'foreign ' .. sort .. ' ' .. lacks)
end

-- readNumber converts the value of a field to a number. If `value` is nil or false, because the field is
-- missing, readNumber returns 0. If the value is not valid, the script ends with an error. Only this error
-- needs the key and the field.
local function readNumber(key, field, value)
  return not value and 0 or parseNumber(value)
    or failDamaged(key, field, value, 'not a whole number from 0 to ' .. toString(MAX_NUMBER))
end

-- onMaster returns `reply` if this server is a master. A script that may have written nothing calls onMaster.
-- If this server is a replica, the script ends with an error instead, because the data of a replica may be
-- old and must not decide anything. To recognize a replica, onMaster calls HDEL, which a replica refuses with
-- READONLY. On a master, HDEL of a field that never exists changes nothing. A master may refuse HDEL for
-- other reasons, such as a full disk, but the reply is valid nevertheless. The key must be a hash, or not
-- exist. If key is nil, KEYS[1] is used.
local function onMaster(reply, key)
  key = key or KEYS[1]
  local refused = redis.pcall('HDEL', key, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
    redis.call('HDEL', key, '') -- raises READONLY again; go-redis closes a connection that gets this error
  end
  return reply
end

-- lookOnMaster ends the script with an error if this server is a replica, like onMaster. It is for scripts
-- that a user with read-only rights may run. If the user may not call HDEL, lookOnMaster does not call HDEL,
-- because Redis would log the refusal. Then a replica is not recognized, and may answer the request. In Redis
-- 6.2, scripts cannot check rights, so lookOnMaster always calls HDEL there.
local function lookOnMaster(key)
  local known, allowed = pcall(redis.acl_check_cmd, 'HDEL', key or KEYS[1], '')
  if allowed or not known then
    onMaster(nil, key)
  end
end

-- clock returns the Redis time in microseconds, as a number and as a string.
local function clock()
  local time = redis.call('TIME')
  -- Joining the two strings is faster than formatting them, but only correct if the microseconds have six
  -- digits.
  local stamped = #time[2] == 6 and time[1] .. time[2] or string.format('%d%06d', time[1], time[2])
  return tonumber(stamped), stamped
end

local function session(owner)
  return string.match(owner, '^[^:]*')
end

-- channel returns the name of the channel on which the session `of` is notified. `channels` is the prefix of
-- the names of all session channels. The name of a sharded channel also contains the lock's key without the
-- prefix of the session. So both have the same hash tag, and the channel is in the slot of the lock.
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

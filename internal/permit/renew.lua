-- Makes the lease of a holder at least so long. It sets and never adds, so a copy that comes twice or late changes nothing.
--
-- KEYS    internal/permit/lua/permit.lua
-- ARGV[1] owner field
-- ARGV[2] token of the grant
-- ARGV[3] lease in milliseconds
-- ARGV[4] milliseconds by which the metadata outlives the lease
--
-- Reply: 'K' kept, 'L' lost: not held under this token
--
-- Generated from internal/permit/lua/renew.lua: edit that, and run go generate ./...

-- clock returns the Redis time in microseconds, as a number and as stamp has it.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], string.format('%d%06d', time[1], time[2])
end

local now = clock()
local till = redis.call('ZSCORE', KEYS[1], ARGV[1])

-- bad ends the script with an error that Refusal of refusal.go reads. Nothing may have been written before.
local function bad(key, field, value, why)
  local function plain(text) -- a server may not pass on every byte
    return (string.gsub(text, '[^!-$&-+%-.-<>-~]', function(c) return string.format('=%02X', string.byte(c)) end))
  end
  error('LOCKLINE ' .. plain(key) .. ',' .. plain(field) .. ',' .. plain(string.sub(value, 1, 40)) .. ',' .. plain(why) .. ' .', 0)
end

-- holding is what is known of a holder: how many permits it has, its token, and what its session says of itself.
local function holding(owner)
  local value = redis.call('HGET', KEYS[6], owner)
  if not value then
    return nil
  end
  local n, token, about = string.match(value, '^(%d+) (%d+) (.*)$')
  if not n then
    bad(KEYS[6], owner, value, 'not a number of permits and a token')
  end
  return tonumber(n), token, about
end

local _, token = holding(ARGV[1])
if not till or tonumber(till) <= now or token ~= ARGV[2] then
  return 'L'
end
redis.call('PEXPIRE', KEYS[6], math.max(2 * ARGV[3], redis.call('PTTL', KEYS[6]))) -- which a full server takes, and all that is behind it

local function stamp(number)
  return string.format('%.0f', number)
end

-- outlive makes the metadata last for at least ms more. It is set to more than that,
-- so as not to be set each time.
local function outlive(ms, keep)
  if redis.call('PTTL', KEYS[2]) < ms then
    redis.call('PEXPIRE', KEYS[2], ms + keep)
  end
end

-- prolong sets the lease of a holder: ms from now. On a server that is full, that takes a write before it that needs no memory.
local function prolong(owner, ms, now, keep)
  redis.call('ZADD', KEYS[1], stamp(now + ms * 1000), owner)
  if redis.call('PTTL', KEYS[1]) < ms then
    redis.call('PEXPIRE', KEYS[1], 2 * ms)
    redis.call('PEXPIRE', KEYS[6], 2 * ms)
  end
  outlive(ms + keep, keep)
end

prolong(ARGV[1], math.max(tonumber(ARGV[3]), math.ceil((till - now) / 1000)), now, tonumber(ARGV[4]))
return 'K'

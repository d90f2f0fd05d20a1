-- Keeps a session's waiters alive. Hands on a lock whose holder is gone. Adds
-- none to the queue: an attempt that is missing has to ask again.
--
-- KEYS[1] the lock's hash
-- KEYS[2] its metadata. The fields of both: internal/script/lua/shared.lua
-- KEYS[3], KEYS[4], KEYS[5] the queue: internal/script/lua/line.lua
-- ARGV[1] session
-- ARGV[2] liveness in milliseconds
-- ARGV[3] what the names of the sessions' channels begin with
-- ARGV[4] milliseconds by which the metadata outlives the queue
-- ARGV[5] how the session is told
-- ARGV[6] and on: attempts of this session that wait
--
-- Reply: 'B NOW PTTL OWNER TOKEN MISSING...', or 'A...' if another session is next in the queue: the Redis time in microseconds, which
-- attempt holds the lock ('-' if none), and which attempts neither wait nor hold it; and in
-- a second line what the owner's session says of itself. A 'D' behind the first letter: this server knows of nobody that listens
-- for the asking session

local now, liveness, keep = clock(), tonumber(ARGV[2]), tonumber(ARGV[4])
local until_ = stamp(now + liveness * 1000)
if not holder() then
  past('') -- before anything is written: they may end the script
end
local missing = {}
for i = 6, #ARGV do
  if redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    redis.call('ZADD', KEYS[4], until_, ARGV[i])
    local entry = redis.call('HGET', KEYS[5], ARGV[i]) or ''
    local head, before, rest = string.match(entry, '^(%d+ %d+ [^ /+]*)([/+]*)( .*)')
    local after = head and marks(ARGV[3], ARGV[1], ARGV[5], before)
    if head and after ~= before then
      redis.call('HSET', KEYS[5], ARGV[i], head .. after .. rest)
    end
  else
    missing[#missing + 1] = ARGV[i]
  end
end
if #missing < #ARGV - 5 then
  lives(liveness, keep)
end
local owner, token, about = holder()
if not owner then
  owner, token, about = handOver(ARGV[1], ARGV[3], now, keep, past(''))
end
local status = (behind(ARGV[1], ARGV[3], now, owner or '') and 'A' or 'B') .. (deaf(ARGV[3], ARGV[1], ARGV[5]) and 'D' or '')
local reply = { status, stamp(now), stamp(redis.call('PTTL', KEYS[1])), owner or '-', token or '0' }
for _, attempt in ipairs(missing) do
  if attempt ~= owner then
    reply[#reply + 1] = attempt
  end
end
return table.concat(reply, ' ') .. '\n' .. (about or '')

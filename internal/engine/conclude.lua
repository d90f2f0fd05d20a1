-- Begins a release, before the prelude: ends what the attempt holds, whatever the token, for
-- once it ends, nobody wants that. ARGV is as in rlock/release.lua.
--
-- waited   somebody may be granted the lock by this script
--
-- held: the attempt holds the lock; mine: under the token that was named, or any;
-- used: last token that counts as used, if it was held. The rest of the block is given back
-- odd: it is held under something that is no token. Nothing was done then

local held = redis.call('HMGET', KEYS[1], ARGV[1], 't')
local mine, used = ARGV[2] == held[2] or ARGV[2] == '', ARGV[6]
local odd = held[1] and ARGV[2] ~= held[2] and not (held[2] and string.find(held[2], '^%d+$') and tonumber(held[2]) <= 9e15)
if held[1] and not odd then
  if waited then -- while a slot moves to another node, a script cannot make a key again
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('DEL', KEYS[1])
  end
  if used == '' or not mine then
    used = string.format('%.0f', held[2] + BLOCK - 1)
  elseif used == '0' then
    used = held[2]
  end
  -- Not possible while short of memory. What the grant kept alive need not be now, unless it was evicted.
  if redis.pcall('HSET', KEYS[2], 't', used, 'r', used, 'a', ARGV[1]) == 3 and redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[2], 2 * ARGV[4])
  end
end

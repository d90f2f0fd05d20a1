-- Takes the lock by force from a holder of ALL permits, from all holders of fewer permits, or from the holder
-- with a given token. The lock or the permits are then granted to waiters, as in release.lua. The former
-- holder notices its loss with its next request. If its session may keep the lock while no goroutine has it,
-- the session is notified at once.
--
-- If somebody has damaged the hash, the script deletes the whole hash. There are two exceptions. If the hash
-- has neither `owner` nor `shared`, the script ends with an error. If ARGV[3] is a token, but not the value
-- of `token`, the script changes nothing.
--
-- Sending a request with a token again is harmless, because no later holder gets the same token, except in
-- the cases of docs/guarantees.md. Without a token, a second copy can also take the lock from a later holder.
--
-- KEYS      see internal/script/lua/queue.lua. If a request has only KEYS[1], but the script needs more keys,
--           the script fails with TRYAGAIN, see release.lua
-- ARGV[1]   CHANNELS, see internal/script/lua/queue.lua
-- ARGV[2]   KEEP, see internal/script/lua/lock.lua
-- ARGV[3]   '' for the holder of ALL permits, 'r' for all holders of fewer permits, or the token of a holder
--
-- Reply: the number of holders that have lost the lock; 1 if a damaged hash was deleted

-- look returns three values: the result of read; a list of the owner fields of the holders that ARGV[3]
-- selects; and a table that maps the owner field of each further holder among them to the result of
-- readShare. If the request does not name a key that is needed, look returns only the first value. If
-- somebody has damaged the hash, look raises an error.
local function look(now)
  local s, forced, shares = read('', now, ARGV[2]), {}, {}
  local function isSelected(permits, token)
    return ARGV[3] == token or ARGV[3] == (permits == ALL and '' or 'r')
  end
  if not KEYS[2] and (s.queued > 0 or s.shared > 0) or KEYS[4] == KEYS[1] and s.shared > 0 then
    return s
  end
  dropExpired(s)
  if s.owner and isSelected(s.permits, s.token) then
    forced[1] = s.owner
  end
  local all = s.shared > 0 and redis.call('HGETALL', KEYS[1]) or {}
  for i = 1, #all, 2 do
    local owner = string.match(all[i], '^held (%S+)$')
    if owner and not s.gone[owner] and isSelected(parseShare(owner, all[i + 1])) then
      forced[#forced + 1], shares[owner] = owner, readShare(s, owner, all[i + 1])
    end
  end
  return s, forced, shares
end

local now = clock()
local held = redis.call('HMGET', KEYS[1], 'owner', 'token', 'shared')
if KEYS[4] and KEYS[4] ~= KEYS[1] then
  redis.call('ZSCORE', KEYS[4], '') -- ends the script if KEYS[4] is not a sorted set, so the hash is kept
end
local sane, s, forced, shares = pcall(look, now)
-- Only the error of failDamaged shows that the hash is damaged. This error is a string that begins with
-- LOCKLINE. Another error may mean, for example, that the user has no right to ZRANGE.
local damaged = not sane and type(s) == 'string' and string.sub(s, 1, 9) == 'LOCKLINE '
if not sane and not (damaged and (held[1] or held[3])) then
  error(s, 0)
elseif not sane then
  if ARGV[3] ~= '' and ARGV[3] ~= 'r' and ARGV[3] ~= held[2] then
    return onMaster('0')
  end
  redis.call('DEL', KEYS[1])
  return '1'
elseif not forced then
  return redis.error_reply('TRYAGAIN the other keys are needed')
end
if #forced == 0 then
  return onMaster('0')
end
local lingers, ownerForced = {}, false
for _, owner in ipairs(forced) do
  if shares[owner] then
    removeShare(s, owner, shares[owner], true)
    lingers[owner] = shares[owner].lingers
  else
    ownerForced, lingers[owner], s.owner, s.lingers = true, s.lingers, nil, nil
  end
end
-- The queue is read before the first write, because reading fails if somebody has damaged the queue.
local q = lookUp(s, ARGV[1], {})
-- A full server may refuse the first write of a script, but no later write, and no HDEL. So the first write
-- is this HDEL, which changes nothing. On a replica, it fails, which ends the script.
redis.call('HDEL', KEYS[1], '')
if ownerForced then
  redis.call('HDEL', KEYS[1], 'owner', 'lingers')
end
serve(s, ARGV[1], q, {})
removeDropped(s)
writeTombstones(s, forced, toString(s.lives))
for _, owner in ipairs(forced) do
  if lingers[owner] then
    notifyKeeper(s, owner, ARGV[1], lingers[owner])
  end
end
return toString(#forced)

-- Functions that grant permits, take back the permits of leases that have ended, and find the lease that ends
-- first. A further holder is a holder that is not in the field `owner`. A lock without permits has no further
-- holders. For such a lock, these functions do not use the keys and fields of further holders.
--
-- internal/script/lua/lock.lua describes the keys and fields. The parameter s is the result of its function
-- read.

-- parseShare parses `value`, the value of the field `held SESSION:ATTEMPT` of a further holder. owner is
-- SESSION:ATTEMPT. parseShare returns the permits, the token, LINGERS (nil instead of '-') and INFO. If the
-- value is damaged, the script ends with an error.
local function parseShare(owner, value)
  local permits, token, lingers, info = string.match(value, '^(%d+) (%d+) ([-%d]) (.*)$')
  if not permits then
    failDamaged(KEYS[1], 'held ' .. owner, value, 'not a number of permits and a token')
  end
  return tonumber(permits), token, lingers ~= '-' and lingers or nil, info
end

-- readShare reads the field of a further holder, and the end of its lease in µs. A caller that has already
-- read the field passes its value as `value`. A caller that has read the end of the lease passes it as
-- `ends`. readShare returns nil if the field is missing. The fields of the result:
--   permits, token, lingers, info   as in the field; lingers is nil instead of '-'
--   ends, left                      end of its lease in µs, and ms until then
--   valid                           true if its lease has not ended
local function readShare(s, owner, value, ends)
  value = value or redis.call('HGET', KEYS[1], 'held ' .. owner)
  if not value then
    return nil
  end
  local permits, token, lingers, info = parseShare(owner, value)
  ends = tonumber(ends or redis.call('ZSCORE', KEYS[4], owner) or 0) or 0
  return { permits = permits, token = token, lingers = lingers, info = info,
    ends = ends, left = math.ceil((ends - s.now) / 1000), valid = ends > s.now }
end

-- grantOf returns the grant of an attempt, or nil if the attempt holds nothing. If the attempt is the holder
-- in `owner`, the result is s itself. If it is a further holder, grantOf returns the result of readShare.
local function grantOf(s, owner)
  if s.owner == owner then
    return s
  end
  local share = s.shared > 0 and readShare(s, owner)
  return share and share.valid and share or nil
end

-- unused returns the number of permits that no holder has. The result is negative if the limit was set below
-- the number of permits in use. If the limit is not known, because the hash was deleted, the result is 0.
local function unused(s)
  return not s.limit and 0 or s.limit - s.shared - (s.owner and s.permits or 0)
end

-- setShareLease sets the end of a further holder's lease, in µs.
local function setShareLease(s, owner, ends)
  redis.call('ZADD', KEYS[4], toString(ends), owner)
  local ms = math.ceil((ends - s.now) / 1000)
  if redis.call('PTTL', KEYS[4]) < ms then
    redis.call('PEXPIRE', KEYS[4], toString(2 * ms))
  end
end

-- writeShare writes the field of a further holder. The variadic arguments are further fields of the hash.
local function writeShare(s, owner, share, ...)
  set(s, share.ends, 'held ' .. owner,
    table.concat({ toString(share.permits), share.token, share.lingers or '-', share.info }, ' '), ...)
end

-- extendLease extends the lease of a holder until `ends`, a Redis time in µs. A lease that ends later is not
-- shortened. held is the result of grantOf. The variadic arguments are further fields of the hash, for the
-- holder in `owner`. They are ignored for a further holder.
local function extendLease(s, owner, held, ends, ...)
  -- A full server may refuse the first write of a script, but no later write, and no HDEL. So the first write
  -- is this HDEL, which changes nothing. On a replica, it fails, which ends the script.
  redis.call('HDEL', KEYS[1], '')
  ends = math.max(held.ends, ends)
  if held == s then
    set(s, ends, 'ends', toString(ends), ...)
  else
    set(s, ends, 'shared', toString(s.shared), ...)
    setShareLease(s, owner, ends)
  end
end

-- removeShare takes back the permits of a further holder. share is the result of readShare. If `lost` is
-- true, the holder has not released its permits, so its token counts as lost. removeShare changes only s. The
-- caller must call removeDropped later.
local function removeShare(s, owner, share, lost)
  s.shared = math.max(0, s.shared - share.permits)
  s.gone[owner] = true
  if lost then
    s.lostShareToken = math.max(s.lostShareToken or 0, tonumber(share.token))
  end
end

-- grant calls grantBeside if another holder is in `owner`. grantBeside makes the attempt a further holder,
-- and returns its token.
local function grantBeside(s, owner, permits, info, lease, ...)
  local token, ends = toString(math.max(s.now, s.last + 1)), s.now + lease * 1000
  -- dropExpired may have left an expired grant of this attempt. If it has left none, s.moreExpired is false.
  local before = s.moreExpired and not s.gone[owner] and readShare(s, owner)
  if before then
    removeShare(s, owner, before, true)
  end
  s.shared, s.granted, s.last = s.shared + permits, tonumber(token), tonumber(token)
  writeShare(s, owner, { permits = permits, token = token, info = info, ends = ends },
    'shared', toString(s.shared), 'limit', toString(s.limit), 'floor', token, ...)
  setShareLease(s, owner, ends)
  s.gone[owner] = nil -- removeDropped must not remove the new grant; an expired one may have set this entry
  return token
end

-- grant makes an attempt a holder of `permits` permits, with a lease in ms. It returns the token. A holder of
-- ALL permits gets a whole block of tokens, and grant returns the first token of the block. The variadic
-- arguments are names and values of further fields of the hash. At least `permits` permits must be unused.
local function grant(s, owner, permits, info, lease, ...)
  if s.owner then
    return grantBeside(s, owner, permits, info, lease, ...)
  end
  local token, ends = toString(math.max(s.now, s.last + 1)), s.now + lease * 1000
  -- A hash without a token has no record of earlier grants. All earlier tokens then count as lost, because a
  -- session may still believe that it has one of these grants.
  local lost = s.lost or s.granted == 0 and token - 1
  -- A full server can refuse only the first write of a script. So this write comes before the others, and a
  -- refused grant leaves nothing behind.
  set(s, ends, 'owner', owner, 'ends', toString(ends), 'token', token, 'count', '1', 'change', '0',
    'info', info, ...)
  if KEYS[4] then
    redis.call('HSET', KEYS[1], 'permits', toString(permits), 'limit', toString(s.limit))
  end
  if lost then
    redis.call('HSET', KEYS[1], 'lost', toString(lost))
  end
  if s.hasLingersOrFloor then -- left by a former holder in `owner` that did not release
    redis.call('HDEL', KEYS[1], 'lingers', 'floor')
  end
  s.owner, s.token, s.permits, s.info, s.lingers = owner, token, permits, info, nil
  s.granted, s.last, s.lost = tonumber(token), tonumber(token), nil
  s.ends, s.left = ends, lease
  return token
end

-- dropExpired takes back the permits of further holders whose leases have ended. It changes only s, and the
-- caller must call removeDropped later. If dropExpired removed the fields itself, its HDEL would be the
-- first write of the script. Then a full server would accept all later writes, and could not refuse a new
-- holder.
local function dropExpired(s)
  local first = s.shared > 0 and redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
  if not first then
    return
  end
  if not first[1] then -- KEYS[4] was deleted by hand
    local all = redis.call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      local owner = string.match(all[i], '^held (%S+)$')
      if owner then
        s.gone[owner] = true
      end
    end
    s.shared, s.lostShareToken = 0, s.granted
  elseif tonumber(first[2]) <= s.now then
    local leases = redis.call('ZRANGE', KEYS[4], 0, BATCH - 1, 'WITHSCORES')
    for i = 1, #leases, 2 do
      local owner, ends = leases[i], leases[i + 1]
      local share = tonumber(ends) <= s.now and readShare(s, owner, nil, ends)
      if share then
        removeShare(s, owner, share, string.sub(owner, -1) ~= '~')
      elseif share == nil then -- the field was deleted by hand
        s.gone[owner] = true
      end
    end
    s.moreExpired = #leases == 2 * BATCH and tonumber(leases[#leases]) <= s.now
  end
end

-- removeDropped removes the fields and leases of the further holders whose permits removeShare or dropExpired
-- has taken back.
local function removeDropped(s)
  local owners, fields = {}, {}
  for owner in pairs(s.gone) do
    owners[#owners + 1], fields[#fields + 1] = owner, 'held ' .. owner
  end
  if #owners == 0 then
    return
  end
  for i = 1, #owners, BATCH do -- Lua cannot pass many thousands of arguments
    local last = math.min(i + BATCH - 1, #owners)
    redis.call('HDEL', KEYS[1], unpack(fields, i, last))
    redis.call('ZREM', KEYS[4], unpack(owners, i, last))
  end
  if s.shared == 0 then
    redis.call('HDEL', KEYS[1], 'shared', 'lingerers')
  else
    redis.call('HSET', KEYS[1], 'shared', toString(s.shared))
  end
  local token = s.lostShareToken
  if token and token > readNumber(KEYS[1], 'lost', redis.call('HGET', KEYS[1], 'lost')) then
    redis.call('HSET', KEYS[1], 'lost', toString(token))
  end
  s.gone, s.lostShareToken = {}, nil
end

-- removeExpired removes an attempt from the holders if its lease has ended. If the attempt stayed there, its
-- lease would be valid again as soon as the clock of the server is set back. The caller must have checked
-- that the attempt has no valid lease.
local function removeExpired(s, owner)
  if s.former == owner then
    redis.call('HDEL', KEYS[1], 'owner', 'lingers')
  end
  local share = s.shared > 0 and not s.gone[owner] and readShare(s, owner)
  if share then
    removeShare(s, owner, share, true)
    removeDropped(s)
  end
end

-- firstHolderToEnd returns the holder whose lease ends first. For the holder in `owner`, the result is s. For
-- a further holder, the result has the fields owner, now and left, and the fields of the result of readShare.
-- If nobody holds permits, owner and left are nil. If removeDropped has not run since dropExpired, the result
-- may be a further holder whose lease has ended.
local function firstHolderToEnd(s)
  local first = s.shared > 0 and redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES') or {}
  if s.owner and (not first[1] or s.ends <= tonumber(first[2])) then
    return s
  end
  local holder = first[1] and readShare(s, first[1], nil, first[2]) or {}
  holder.owner, holder.now = first[1], s.now
  holder.left = first[1] and math.max(0, math.ceil((first[2] - s.now) / 1000))
  return holder
end

-- The hash of a lock: its fields, and the functions that read and write it. Most scripts of locks also use
-- internal/script/lua/queue.lua.
--
-- KEYS[1]   the lock's hash. It stays for a while after a release: tokens must grow, and a stale copy of a
--           request must be recognized.
--             owner      owner field of the holder, SESSION:ATTEMPT. It is missing if nobody holds the lock.
--                        It ends with a '~' while the lock stays taken after the unlock
--             ends       Redis time in µs at which the lease ends. From then on the lock is free, although
--                        `owner` still names the holder
--             token      first token of the block that was granted last. After the release, the last token
--                        that was used
--             floor      no later holder may have this token, or a lower one. It is only there if it is above
--                        `token`
--             count      hold count
--             change     number of the last change of the count, within the grant
--             info       holder info, PID@HOST LABEL
--             lingers    the holder's session may keep the lock while no goroutine has it. The value says how
--                        the session is notified
--             released   last token that was released
--             lost       last token of the last grant that ended without a release
--             releaser   owner field that has released last
--             ticket     last ticket of the queue
--             queued     Redis time in µs until which the keys of the queue live, at least. It is missing if
--                        the queue is empty
--             lives      Redis time in µs until which this key lives, at least
--             refused    Redis time in µs at which a session was last refused the lock because another
--                        session kept it
--             leader     of an election: OWNER TOKEN NUMBER VALUE, see election/proclaim.lua
--             SESSION:ATTEMPT   a tombstone: Redis time in µs until which a copy of this attempt's request
--                        may arrive, though the attempt has ended
--
-- Arguments of several scripts:
--   KEEP      ms for which the hash is kept after a lease or a release, at least

-- notOurs ends the script because the hash has this field, but not `lives`, which these scripts always write.
local function notOurs(field, value)
  foreign('lock', 'lives', field, value)
end

-- read returns the state of the lock for the request of an attempt. Only read and the common cases of
-- acquire.lua and release.lua look at `owner`, because each must compare the end of the lease with the Redis
-- time. (force.lua looks at it in a damaged hash, which read refuses.) The fields of the result:
--   now, keep            Redis time in µs, and KEEP
--   owner, token, left   the holder, its token, and ms until its lease ends; owner is nil if the lock is free
--   former               the holder whose lease has ended, as long as `owner` still names it
--   granted              the higher one of `token` and `floor`; 0 if missing
--   last                 highest token that may have been used
--   lost                 the same if the last grant was not released; otherwise nil
--   over                 the attempt has ended, so this is a stale copy of its request
--   ends, lives, queued, ticket   as in the hash; 0 if missing
--   change, info, lingers         as in the hash
--   marked               the hash has `lingers` or `floor`
local function read(attempt, now, keep)
  local f = redis.call('HMGET', KEYS[1], 'owner', 'ends', 'token', 'floor', 'released', 'releaser', 'queued',
    'lives', 'ticket', 'change', 'info', 'lingers', attempt)
  local other = f[8] and {} or redis.call('HGETALL', KEYS[1])
  if other[1] then
    notOurs(other[1], other[2])
  end
  local function field(name, value)
    return whole(KEYS[1], name, value)
  end
  local s = { now = now, keep = tonumber(keep), ends = field('ends', f[2]), lives = field('lives', f[8]),
    queued = field('queued', f[7]), ticket = field('ticket', f[9]), change = f[10], info = f[11] or '',
    over = f[6] == attempt or f[13], granted = math.max(field('token', f[3]), field('floor', f[4])) }
  s.last = s.granted
  if f[3] ~= f[5] then -- the last grant was not released
    s.last = s.granted + BLOCK - 1
    s.lost = s.last
  end
  if f[1] and not string.find(f[1], '^%S+$') then
    bad(KEYS[1], 'owner', f[1], 'not an owner field')
  end
  if f[1] and s.ends > now then
    s.owner, s.token, s.lingers = f[1], f[3] or '0', f[12]
    s.left = math.ceil((s.ends - now) / 1000)
  else
    s.former = f[1]
  end
  s.marked = f[12] or f[4]
  return s
end

-- set sets fields of the hash, which then lives until KEEP ms after the time `till` in µs, at least.
local function set(s, till, ...)
  if s.lives >= till + s.keep * 1000 then
    redis.call('HSET', KEYS[1], ...)
    return
  end
  local new = s.lives == 0
  redis.call('HSET', KEYS[1], 'lives', stamp(s.lives)) -- makes the key, unless the server is full
  s.lives = till + 2 * s.keep * 1000
  local ms = stamp(math.ceil((s.lives - s.now) / 1000))
  if new and redis.pcall('PEXPIRE', KEYS[1], ms) ~= 1 then -- the user has no right to PEXPIRE
    redis.call('DEL', KEYS[1])
  end
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('HSET', KEYS[1], 'lives', stamp(s.lives), ...)
end

-- grant makes an attempt the holder under a new block of tokens, for a lease in ms, and returns the first
-- token. The rest are further fields of the hash.
local function grant(s, owner, info, lease, ...)
  local token, ends = stamp(math.max(s.now, s.last + 1)), s.now + lease * 1000
  -- A hash without a token does not know earlier grants. A session that believes in one has lost the lock.
  local lost = s.lost or s.granted == 0 and token - 1
  -- First, because a server that is full refuses only the first write.
  set(s, ends, 'owner', owner, 'ends', stamp(ends), 'token', token, 'count', '1', 'change', '0',
    'info', info, ...)
  if lost then
    redis.call('HSET', KEYS[1], 'lost', stamp(lost))
  end
  if s.marked then -- by a holder whose lease has ended
    redis.call('HDEL', KEYS[1], 'lingers', 'floor')
  end
  s.owner, s.token, s.info, s.ends, s.left, s.lingers = owner, token, info, ends, lease, nil
  return token
end

-- released reports whether a token was granted and released: it is above the last token that was lost, and
-- not above the last token that was released.
local function released(token)
  local known = redis.call('HMGET', KEYS[1], 'released', 'lost')
  return known[1] and tonumber(token) <= whole(KEYS[1], 'released', known[1])
    and tonumber(token) > whole(KEYS[1], 'lost', known[2])
end

-- bury stores a tombstone for an attempt that has ended, because a copy of its request may arrive until the
-- Redis time `late`, in µs. If that is '0', no copy is in flight, and bury does nothing. Otherwise it also
-- removes the tombstones whose time has passed.
local function bury(s, owner, late)
  if late == '0' then
    return
  end
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) and (tonumber(all[i + 1]) or 0) < s.now then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  if tonumber(late) >= s.now then
    set(s, s.now, owner, late)
  end
end

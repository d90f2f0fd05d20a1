-- The fields of a lock's hash, and the functions that read and write the hash. Most scripts of locks also use
-- internal/script/lua/queue.lua.
--
-- A read-write lock and a semaphore are locks with permits, which several holders may share. A writer takes
-- ALL permits, a reader takes one. All other locks are locks without permits. They have at most one holder,
-- which the scripts treat like a holder of ALL permits. The field `owner` names one of the holders. Each
-- further holder has a field of its own, and the end of its lease is in KEYS[4]. The functions for further
-- holders are in internal/script/lua/permits.lua.
--
-- KEYS[1]   the lock's hash. After a release, the hash stays for a while, so that later tokens are higher,
--           and a stale copy of a request is recognized.
--             owner      owner field of one holder, SESSION:ATTEMPT. The field is missing if nobody holds
--                        the lock, or if all holders are further holders. A '~' at the end of the value means
--                        that this holder has unlocked, but the lock stays taken
--             ends       Redis time in µs at which the lease of this holder ends. From then on, the holder
--                        does not hold the lock any more, although `owner` still names it
--             token      last token that was granted to a holder in `owner`. If a block of tokens was
--                        granted, the first token of the block. A release sets the field to the last token
--                        that was used
--             floor      every later token must be higher than this token. The field exists only if it is
--                        above `token`
--             count      hold count
--             change     number of the last change of `count` within the grant
--             info       holder info, PID@HOST/PROTOCOL:LIBRARY LABEL. If the call of Lock had a note, a
--                        tab and the note follow
--             lingers    if present, the holder's session may keep the lock while no goroutine has it. The
--                        value is the session's DELIVERY, see queue.lua
--             released   value that `token` got at the last release by a holder in `owner`. This value may
--                        be the token of a further holder that has not released yet
--             lost       last token of the last grant that ended without a release
--             releaser   owner field of the holder whose release has set `released`
--             ticket     last ticket of the queue
--             queued     the keys of the queue live until this Redis time in µs, at least. The hash lacks
--                        this field only if the queue is empty
--             lives      this key lives until this Redis time in µs, at least
--             refused    Redis time in µs at which a session that may keep the lock was last notified that
--                        another session wants the lock, see notifyKeeper in queue.lua
--             leader     only of an election: 'OWNER TOKEN NUMBER VALUE', see election/proclaim.lua
--             permits    number of permits of the holder in `owner`. In a lock without permits, this field
--                        and `limit` are missing, and both count as ALL
--             shared     number of permits that the further holders have together; 0 if missing
--             held SESSION:ATTEMPT   a further holder: 'PERMITS TOKEN LINGERS INFO'. LINGERS is '-', or the
--                        value that the field `lingers` would have for this holder
--             lingerers  if present, there may be further holders whose LINGERS is not '-'
--             limit      the number of permits that all holders may have together
--             limiter    id of the request of limit.lua that has set the limit; missing if the limit came
--                        with a grant
--             SESSION:ATTEMPT   a tombstone of an attempt that has ended. The value is the Redis time in µs
--                        until which a copy of the attempt's request may arrive
-- KEYS[4]   only of a lock with permits: a sorted set of the further holders. The score of a holder is the
--           Redis time in µs at which its lease ends. While the slot of the lock moves to another node, a
--           request may name KEYS[1] a second time in place of this key. If the lock has further holders, the
--           script then fails with TRYAGAIN. If it has none, the script adds none
--
-- Arguments of several scripts:
--   KEEP      minimum time in ms for which the hash is kept after the end of a lease or after a release

-- failNotLock ends the script with an error, because the hash lacks the field `lives`, which these scripts
-- always write. The parameter lock maps the fields of the hash to their values. The error names the first
-- field in sorted order, because the order of HGETALL differs from server to server.
local function failNotLock(lock)
  local first
  for field in pairs(lock) do
    first = first and first < field and first or field
  end
  failForeign('lock', 'lives', first, lock[first])
end

-- read returns the state of the lock for a request. attempt is the owner field of the attempt that sends the
-- request, or '' if no attempt sends it. Code that reads `owner` must also compare the end of the lease with
-- the Redis time. So only the function read and the common cases of acquire.lua and release.lua read `owner`.
-- (force.lua also reads `owner` from a damaged hash, for which read fails.) The fields of the result:
--   now, keep            Redis time in µs, and KEEP
--   owner, token, left   the holder in `owner`, its token, and ms until its lease ends; all three are nil if
--                        `owner` is missing, or the lease has ended
--   permits              number of permits of the last holder in `owner`, even if its lease has ended
--   former               the holder in `owner` if its lease has ended; otherwise nil
--   shared, limit        as in the hash; limit is nil if the hash of a lock with permits does not have it
--   gone                 a set of further holders, which is empty at first. removeShare and dropExpired add
--                        the holders whose permits this request takes back. removeDropped removes the fields
--                        and leases of these holders from Redis, and empties the set
--   granted              the higher one of `token` and `floor`; 0 if both are missing
--   last                 highest token that a holder may have used
--   lost                 equals last if the last grant to a holder in `owner` was not released; otherwise nil
--   over                 true if the attempt has ended, so this request is a stale copy
--   ends, lives, queued, ticket   as in the hash; 0 if missing
--   change, info         as in the hash; info is '' if missing
--   lingers              as in the hash, but nil if the lease of the holder in `owner` has ended
--   hasLingersOrFloor    true if the hash has `lingers` or `floor`
local function read(attempt, now, keep)
  local f = redis.call('HMGET', KEYS[1], 'owner', 'ends', 'token', 'floor', 'released', 'releaser', 'queued',
    'lives', 'ticket', 'change', 'info', 'lingers', attempt,
    'permits', 'shared', 'limit')
  local other = not f[8] and map(KEYS[1])
  if other then
    failNotLock(other)
  end
  local function field(name, value)
    return readNumber(KEYS[1], name, value)
  end
  local s = { now = now, keep = tonumber(keep), ends = field('ends', f[2]), lives = field('lives', f[8]),
    queued = field('queued', f[7]), ticket = field('ticket', f[9]), change = f[10], info = f[11] or '',
    over = f[6] == attempt or f[13], granted = math.max(field('token', f[3]), field('floor', f[4])) }
  s.permits, s.shared = f[14] and field('permits', f[14]) or ALL, field('shared', f[15])
  s.limit, s.gone = f[16] and field('limit', f[16]) or not KEYS[4] and ALL or nil, {}
  s.last = s.granted
  if f[3] ~= f[5] then -- the last grant to a holder in `owner` was not released
    s.last = s.granted + (s.permits == ALL and BLOCK - 1 or 0)
    s.lost = s.last
  end
  if f[1] and not string.find(f[1], '^%S+$') then
    failDamaged(KEYS[1], 'owner', f[1], 'not an owner field')
  end
  if f[1] and s.ends > now then
    s.owner, s.token, s.lingers = f[1], f[3] or '0', f[12]
    s.left = math.ceil((s.ends - now) / 1000)
  else
    s.former = f[1]
  end
  s.hasLingersOrFloor = f[12] or f[4]
  return s
end

-- set writes fields of the hash. It also ensures that the hash lives for at least KEEP ms after `till`, a
-- Redis time in µs.
local function set(s, till, ...)
  if s.lives >= till + s.keep * 1000 then
    redis.call('HSET', KEYS[1], ...)
    return
  end
  local new = s.lives == 0
  redis.call('HSET', KEYS[1], 'lives', toString(s.lives)) -- if a full server refuses this, nothing changes
  s.lives = till + 2 * s.keep * 1000
  local ms = toString(math.ceil((s.lives - s.now) / 1000))
  -- If the user has no right to PEXPIRE, the new key must not stay. The second PEXPIRE then ends the script.
  if new and redis.pcall('PEXPIRE', KEYS[1], ms) ~= 1 then
    redis.call('DEL', KEYS[1])
  end
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('HSET', KEYS[1], 'lives', toString(s.lives), ...)
end

-- released reports whether a token was granted and released. Every such token is above the last lost token,
-- and not above the last released token. The caller must know that no holder has the token.
local function released(token)
  local known = redis.call('HMGET', KEYS[1], 'released', 'lost')
  return known[1] and tonumber(token) <= readNumber(KEYS[1], 'released', known[1])
    and tonumber(token) > readNumber(KEYS[1], 'lost', known[2])
end

-- writeTombstones stores tombstones for attempts that have ended. `late` is the Redis time in µs until which
-- copies of their requests may arrive. If `late` is '0', no copy is in flight, and writeTombstones does
-- nothing. Otherwise it also removes the tombstones whose time has passed.
local function writeTombstones(s, owners, late)
  if late == '0' then
    return
  end
  local all, fields = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    if string.find(all[i], '^%S+:') and (tonumber(all[i + 1]) or 0) < s.now then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  if tonumber(late) < s.now then
    return
  end
  for i, owner in ipairs(owners) do
    fields[#fields + 1], fields[#fields + 2] = owner, late
    if i % BATCH == 0 or i == #owners then
      set(s, s.now, unpack(fields))
      fields = {}
    end
  end
end

-- The fields of the hash of a lock, and the functions that read and write it. Most scripts of locks also use
-- internal/script/lua/queue.lua.
--
-- A read-write lock and a semaphore have permits, and several holders may share them. A writer takes ALL
-- permits, a reader one. The holder of any other lock always has ALL permits. The first holder is in `owner`,
-- as the holder of a lock is. Further holders have fields of their own, and their leases are in KEYS[4]. The
-- functions for them are in internal/script/lua/permits.lua.
--
-- KEYS[1]   the lock's hash. It stays for a while after a release, because tokens must grow, and a stale copy
--           of a request must be recognized.
--             owner      owner field of the holder, SESSION:ATTEMPT. It is missing if nobody holds the lock.
--                        It ends with a '~' while the lock stays taken after the unlock
--             ends       Redis time in µs at which the lease ends. From then on the lock is free, although
--                        `owner` still names the holder
--             token      first token of the block that a holder in `owner` was granted last. After the
--                        release, the last token that was used
--             floor      no later holder may have this token, or a lower one. It is only there if it is above
--                        `token`
--             count      hold count
--             change     number of the last change of the count, within the grant
--             info       holder info, PID@HOST/PROTOCOL:LIBRARY LABEL, and behind a tab the note of the call,
--                        if it has one
--             lingers    the holder's session may keep the lock while no goroutine has it. The value says how
--                        the session is notified
--             released   `token` after the last release by a holder in `owner`. A further holder may still
--                        have that token
--             lost       last token of the last grant that ended without a release
--             releaser   owner field of that holder
--             ticket     last ticket of the queue
--             queued     Redis time in µs until which the keys of the queue live, at least. It is missing if
--                        the queue is empty
--             lives      Redis time in µs until which this key lives, at least
--             refused    Redis time in µs at which a session was last refused the lock because another
--                        session kept it
--             leader     of an election: OWNER TOKEN NUMBER VALUE, see election/proclaim.lua
--             permits    number of permits of the holder in `owner`. This field and `limit` are missing if
--                        the lock has no permits, and mean ALL then
--             shared     number of permits that the further holders have together; 0 if missing
--             held SESSION:ATTEMPT   a further holder: 'PERMITS TOKEN LINGERS INFO'. LINGERS is '-', or has
--                        the meaning that the field `lingers` has for the holder in `owner`
--             lingerers  some further holders may keep their permits while no goroutine has them
--             limit      the number of permits
--             limiter    id of the request of limit.lua that has set the limit; missing if the limit came
--                        with a grant
--             SESSION:ATTEMPT   a tombstone: Redis time in µs until which a copy of this attempt's request
--                        may arrive, though the attempt has ended
-- KEYS[4]   only of a lock with permits: a sorted set of its further holders by the Redis time in µs at which
--           their leases end. Scripts of other locks have no such key. While a slot moves, a request may name
--           KEYS[1] here again. Then the script fails with TRYAGAIN if there are further holders, and adds
--           none
--
-- Arguments of several scripts:
--   KEEP      ms for which the hash is kept after a lease or a release, at least

-- failNotLock ends the script because the hash with these fields lacks `lives`, which these scripts always
-- write. The error names the field that sorts first. The order of HGETALL differs from server to server.
local function failNotLock(lock)
  local first
  for field in pairs(lock) do
    first = first and first < field and first or field
  end
  failForeign('lock', 'lives', first, lock[first])
end

-- read returns the state of the lock for the request of an attempt. Only read and the common cases of
-- acquire.lua and release.lua look at `owner`, because each must compare the end of the lease with the Redis
-- time. (force.lua looks at it in a damaged hash, which read refuses.) The fields of the result:
--   now, keep            Redis time in µs, and KEEP
--   owner, token, left   the holder, its token, and ms until its lease ends; owner is nil if the lock is free
--   permits              number of permits of the last holder in `owner`, even if its lease has ended
--   former               the holder whose lease has ended, as long as `owner` still names it
--   shared, limit        as in the hash; limit is nil if it is not known
--   gone                 the further holders that hold nothing any more, as keys of a table. removeDropped
--                        removes them
--   granted              the higher one of `token` and `floor`; 0 if missing
--   last                 highest token that may have been used
--   lost                 the same if the last grant was not released; otherwise nil
--   over                 the attempt has ended, so this is a stale copy of its request
--   ends, lives, queued, ticket   as in the hash; 0 if missing
--   change, info, lingers         as in the hash
--   hasLingersOrFloor    the hash has `lingers` or `floor`
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
  if f[3] ~= f[5] then -- the last grant was not released
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

-- set sets fields of the hash, which then lives until KEEP ms after the time `till` in µs, at least.
local function set(s, till, ...)
  if s.lives >= till + s.keep * 1000 then
    redis.call('HSET', KEYS[1], ...)
    return
  end
  local new = s.lives == 0
  redis.call('HSET', KEYS[1], 'lives', toString(s.lives)) -- makes the key, unless the server is full
  s.lives = till + 2 * s.keep * 1000
  local ms = toString(math.ceil((s.lives - s.now) / 1000))
  if new and redis.pcall('PEXPIRE', KEYS[1], ms) ~= 1 then -- the user has no right to PEXPIRE
    redis.call('DEL', KEYS[1])
  end
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('HSET', KEYS[1], 'lives', toString(s.lives), ...)
end

-- released reports whether a token was granted and released. Such a token is above the last token that was
-- lost, and not above the last token that was released. The caller must know that no holder has the token.
local function released(token)
  local known = redis.call('HMGET', KEYS[1], 'released', 'lost')
  return known[1] and tonumber(token) <= readNumber(KEYS[1], 'released', known[1])
    and tonumber(token) > readNumber(KEYS[1], 'lost', known[2])
end

-- writeTombstones stores tombstones for attempts that have ended, because copies of their requests may arrive
-- until the Redis time `late`, in µs. If that is '0', no copy is in flight, and nothing is written. Otherwise
-- writeTombstones also removes the tombstones whose time has passed.
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

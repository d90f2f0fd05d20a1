-- Returns all data of a lock at one instant.
--
-- KEYS    see internal/script/lua/queue.lua. If a request has only KEYS[1], but the script needs more keys,
--         the script fails with TRYAGAIN, see release.lua
--
-- Reply: JSON {"now": MICROSECONDS, "lock": {FIELD: VALUE}, "queue": [ATTEMPT, TICKET, ...],
--        "waiters": {ATTEMPT: ENTRY}, "leases": [OWNER, END, ...]}. "leases" has the further holders.
--        END is a Redis time in µs. TICKET is a Redis time in µs, or the preceding ticket plus 1

lookOnMaster()
local lock = map(KEYS[1])
if lock and not lock.lives then
  failNotLock(lock)
end
-- `own` is true if the request does not name the key of further holders. The reason is that the lock has no
-- permits, or that its slot moves to another node (see KEYS[4] in lock.lua).
local own = not KEYS[4] or KEYS[4] == KEYS[1]
if lock and (not KEYS[2] and lock.queued or own and lock.shared) then
  return redis.error_reply('TRYAGAIN the other keys are needed')
end
return cjson.encode({
  now = select(2, clock()),
  lock = lock,
  queue = KEYS[2] and list(KEYS[2]),
  waiters = KEYS[2] and map(KEYS[3]),
  leases = not own and list(KEYS[4]) or nil,
})

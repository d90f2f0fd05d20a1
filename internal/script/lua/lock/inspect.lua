-- Reads all that is known of a lock at one instant.
--
-- KEYS    see internal/script/lua/queue.lua
--
-- Reply: JSON {"now": MICROSECONDS, "lock": {FIELD: VALUE}, "queue": [ATTEMPT, TICKET, ...],
--        "waiters": {ATTEMPT: ENTRY}}

lookOnMaster()
local lock = map(KEYS[1])
if lock and not lock.lives then
  notOurs(next(lock))
end
return cjson.encode({
  now = select(2, clock()),
  lock = lock,
  queue = list(KEYS[2]),
  waiters = map(KEYS[3]),
})

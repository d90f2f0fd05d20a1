-- Reads all that is known of a lock at one instant.
--
-- KEYS    see internal/script/lua/queue.lua
--
-- Reply: JSON {"now": MICROSECONDS, "lock": {FIELD: VALUE}, "queue": [ATTEMPT, TICKET, ...],
--        "waiters": {ATTEMPT: ENTRY}}

lookOnMaster()
return cjson.encode({
  now = select(2, clock()),
  lock = map(KEYS[1]),
  queue = list(KEYS[2]),
  waiters = map(KEYS[3]),
})

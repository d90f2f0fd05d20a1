-- Reads all that is known of a lock of any kind, or of permits, at one instant.
--
-- Reply: JSON {"now": MICROSECONDS, "metadata": {...}},
--        and of a lock       "ttl": PTTL, "lock": {...}
--        of permits          "holders": [OWNER, END, ...], "held": {OWNER: 'N TOKEN ABOUT'}
--        of what has a queue "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}

lookOnMaster()
local queued, permits = KEYS[5], KEYS[6]
return cjson.encode({
  now = select(2, clock()),
  metadata = map(KEYS[2]),
  ttl = not permits and redis.call('PTTL', KEYS[1]) or nil,
  lock = not permits and map(KEYS[1]) or nil,
  holders = permits and list(KEYS[1]),
  held = permits and map(permits),
  queue = queued and list(KEYS[3]),
  about = queued and map(KEYS[5]),
})

-- Reads the holders, the queue and the metadata of the permits of one name, as of one instant. It does not
-- return the times until which the waiters are known to live.
--
-- KEYS    see internal/script/lua/permit.lua
--
-- Reply: JSON {"now": MICROSECONDS, "metadata": {...}, "holders": [OWNER, END, ...],
--        "held": {OWNER: 'N TOKEN ABOUT'}, "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}}

lookOnMaster(KEYS[2])
return cjson.encode({
  now = select(2, clock()),
  metadata = map(KEYS[2]),
  holders = list(KEYS[1]),
  held = map(KEYS[6]),
  queue = list(KEYS[3]),
  about = map(KEYS[5]),
})

-- Reads all that is known of permits at one instant.
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

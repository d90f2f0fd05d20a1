-- Reads all that is known of permits, at one instant.
--
-- KEYS    internal/script/lua/permit.lua
--
-- Reply: JSON {"now": MICROSECONDS, "limit": N, "holders": [OWNER, END, ...],
--        "held": {OWNER: 'N TOKEN ABOUT'}, "queue": [ATTEMPT, TICKET, ...], "about": {ATTEMPT: ...}}

local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
local queue = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
return cjson.encode({
  now = select(2, clock()),
  limit = redis.call('HGET', KEYS[2], 'n') or nil,
  holders = #holders > 0 and holders or nil,
  held = map(KEYS[6]) or nil,
  queue = #queue > 0 and queue or nil,
  about = map(KEYS[5]) or nil,
})

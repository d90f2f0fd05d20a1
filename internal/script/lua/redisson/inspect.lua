-- Returns the data of the lock.
--
-- KEYS    see internal/script/lua/redisson.lua
--
-- Reply: JSON {"now": MICROSECONDS, "metadata": {FIELD: VALUE}, "ttl": PTTL of the lock's hash,
--        "lock": {FIELD: VALUE}}

lookOnMaster()
return cjson.encode({
  now = select(2, clock()),
  metadata = map(KEYS[2]),
  ttl = redis.call('PTTL', KEYS[1]),
  lock = map(KEYS[1]),
})

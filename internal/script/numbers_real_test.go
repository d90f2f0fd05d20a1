package script_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// exponents passes numbers to commands as Redis 7.2.0 to 7.2.4 does. These versions write multiples of 1e8
// with an exponent, which no command accepts (https://github.com/redis/redis/issues/13113).
const exponents = `local original = redis
local redis = setmetatable({}, { __index = original })
for _, how in ipairs({ 'call', 'pcall' }) do
  redis[how] = function(...)
    local all = { ... }
    for i, v in ipairs(all) do
      all[i] = type(v) == 'number' and v % 1e8 == 0 and v ~= 0 and string.format('%e', v) or v
    end
    return original[how](unpack(all))
  end
end
`

func TestLongLeasesAndLifetimesHaveNoExponent(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	late := time.Now().Add(time.Hour).UnixMicro()
	const long = 100_000_000 // ms
	run := func(name string, keys []string, argv ...any) {
		t.Helper()
		if err := rdb.Eval(t.Context(), exponents+script.Text(name), keys, argv...).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expires := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			ttl := rdb.PTTL(t.Context(), key).Val()
			if ttl < long*time.Millisecond/2 || ttl > 5*long*time.Millisecond {
				t.Errorf("%s lives for %v", key, ttl)
			}
		}
	}
	permits := []string{"p:p:{x}", "p:p:{x}:q", "p:p:{x}:w", "p:p:{x}:h"}
	// There are two permits, so s:3 waits.
	for _, owner := range []string{"s:1", "s:2", "s:3"} {
		run("lock/acquire", permits, owner, 1, late, long/2, "1@h ", 15000, long/2, "p:s:", "nonce", "1", "",
			2, "")
	}
	expires(permits...)
	const name, metadata = "x", "lockline_lock_memory:{x}"
	keys := []string{name, metadata, "redisson_lock_token:{x}"}
	run("redisson/acquire", keys, "s:1", late, long, "1@h ", long, "", "channel", "classic", "")
	expires(name, metadata)
	token := rdb.HGet(t.Context(), name, "t").Val()
	run("redisson/keep", keys[:2], "s:1", token, 1, 1, 2*long, long, "channel", "classic")
	expires(name, metadata)
	if err := rdb.Del(t.Context(), metadata).Err(); err != nil { // as an eviction would
		t.Fatal(err)
	}
	run("redisson/release", keys, "s:1", token, long, 0, "channel", "classic")
	expires(metadata)
	run("latch/set", []string{"p:l:{x}"}, "s:1", late, 1, long)
	expires("p:l:{x}")
}

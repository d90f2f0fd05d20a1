package rlock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
)

// The common case of lock/acquire.lua does what the rest of it would.
func TestTheCommonCaseIsAsTheOthers(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { commonCaseIsAsTheOthers(t, w.Client) })
}

func commonCaseIsAsTheOthers(t *testing.T, rdb *redis.Client) {
	const common = "if call('HLEN', KEYS[1]) == 0 then"
	text := script.Text("lock/acquire")
	if strings.Count(text, common) != 1 {
		t.Fatalf("it has not %q once: %s", common, text)
	}
	both := [2]*redis.Script{redis.NewScript(text),
		redis.NewScript(strings.Replace(text, common, "if false then", 1))}

	const owner, last, future = "s:7", "1000", "4102444800000000"
	memories := map[string][]any{
		"none":                       nil,
		"released":                   {"t", last, "r", last, "a", "s:6", "l", "4"},
		"lost":                       {"t", last, "r", "999", "a", "s:6"},
		"lost, the first":            {"t", last},
		"only marks":                 {"s:5", future},
		"this one is over":           {"t", last, "r", last, "a", owner},
		"this one is marked":         {"t", last, "r", last, "a", "s:6", owner, future},
		"released, of a clock ahead": {"t", future, "r", future, "a", "s:6"},
		"lost, of a clock ahead":     {"t", future, "r", last, "a", "s:6"},
		"released, and nobody waits": {"t", last, "r", last, "q", last},
		"released, and others wait":  {"t", last, "r", last, "q", last},
	}
	for name, memory := range memories {
		for _, ttl := range []time.Duration{0, 80 * time.Second, 100 * time.Second} { // none, due, not due
			var got [2]string
			var left [2][2]time.Duration
			for i, sc := range both {
				keys := []string{"l", "m", "q", "a", "d"}
				for j := range keys {
					keys[j] = testlock.Prefix(rdb) + ":" + keys[j]
				}
				l, m, q, a := keys[0], keys[1], keys[2], keys[3]
				testlock.Must(t, rdb.Del(bg, keys...).Err())
				if memory != nil {
					testlock.Must(t, rdb.HSet(bg, m, memory...).Err())
				}
				if name == "released, and others wait" {
					testlock.Must(t, rdb.ZAdd(bg, q, redis.Z{Score: 1000, Member: "other:1"}).Err())
					testlock.Must(t, rdb.ZAdd(bg, a, redis.Z{Score: 4102444800000000,
						Member: "other:1"}).Err())
				}
				if ttl != 0 {
					testlock.Must(t, rdb.PExpire(bg, m, ttl).Err())
				}
				reply, err := sc.Run(bg, rdb, keys, owner, 1, int64(1)<<52, 30000, "about", 60000, 15000,
					"lockline:s:", "", 0).Text()
				testlock.Must(t, err)
				now := strings.Fields(reply)[1]
				state := []any{reply}
				for j, key := range []string{l, m} {
					fields := rdb.HGetAll(bg, key).Val()
					for _, field := range sorted(fields) {
						state = append(state, field, fields[field])
					}
					left[i][j] = rdb.PTTL(bg, key).Val()
				}
				got[i] = strings.ReplaceAll(fmt.Sprint(state...), now, "NOW")
			}
			if got[0] != got[1] {
				t.Errorf("%s, %v: %s, not %s", name, ttl, got[0], got[1])
			}
			for j := range left[0] {
				if d := left[0][j] - left[1][j]; d.Abs() > 5*time.Second {
					t.Errorf("%s, %v: keys live for %v, not %v", name, ttl, left[0], left[1])
				}
			}
		}
	}
}

func sorted(fields map[string]string) []string { return slices.Sorted(maps.Keys(fields)) }

package semaphore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

const (
	owner  = "s:7"
	first  = int64(1000)
	all    = 1_000_000_000
	future = int64(4102444800000000)
)

// holders puts holders into Redis: who, how many permits, and until when.
func holders(of ...any) func(rdb *redis.Client) {
	return func(rdb *redis.Client) {
		used := 0
		for h := range slices.Chunk(of, 3) {
			end, _ := strconv.ParseFloat(fmt.Sprint(h[2]), 64)
			rdb.ZAdd(bg, "h", redis.Z{Score: end, Member: h[0]})
			rdb.HSet(bg, "e", h[0], fmt.Sprintf("%d %d about", h[1], first))
			used += h[1].(int)
		}
		rdb.HSet(bg, "e", "u", used)
		rdb.HSet(bg, "m", "t", 3000, "n", 5)
	}
}

func queued(rdb *redis.Client) {
	rdb.ZAdd(bg, "q", redis.Z{Score: 1000, Member: "other:9"})
	rdb.ZAdd(bg, "a", redis.Z{Score: float64(future), Member: "other:9"})
	rdb.HSet(bg, "d", "other:9", "1 30000 NONCE about")
}

// fields are commands that set them.
func fields(key string, values ...any) func(rdb *redis.Client) {
	return func(rdb *redis.Client) { rdb.HSet(bg, key, values...) }
}

// number is one that may be a time, or what is left of one.
var number = regexp.MustCompile(`\b\d{13,16}\b`)

// result is the reply and what is in Redis then, with times relative to that of the reply, and how long keys
// last.
func result(rdb *redis.Client, script *redis.Script, argv []any) (text string, left []time.Duration) {
	reply, err := script.Run(bg, rdb, []string{"h", "m", "q", "a", "d", "e"}, argv...).Text()
	if err != nil {
		return "an error", nil
	}
	state := []any{reply, "queue", rdb.ZRange(bg, "q", 0, -1).Val()}
	for _, h := range rdb.ZRangeWithScores(bg, "h", 0, -1).Val() {
		state = append(state, h.Member, int64(h.Score))
	}
	for _, key := range []string{"m", "d", "e"} {
		hash := rdb.HGetAll(bg, key).Val()
		for _, field := range slices.Sorted(maps.Keys(hash)) {
			state = append(state, key+":", field, hash[field])
		}
	}
	for _, key := range []string{"h", "m", "e"} {
		left = append(left, rdb.PTTL(bg, key).Val())
	}
	now, precision := rdb.Time(bg).Val().UnixMicro(), time.Second
	// All but a release say what time it is.
	if words := strings.Fields(reply); !strings.Contains("RL", words[0]) {
		now, _ = strconv.ParseInt(words[1], 10, 64)
		precision = 1
	}
	return number.ReplaceAllStringFunc(fmt.Sprintln(state...), func(s string) string {
		n, _ := strconv.ParseInt(s, 10, 64)
		since, before := time.Duration(n-now)*time.Microsecond, time.Duration(future-n)*time.Microsecond
		switch {
		case since.Abs() < time.Hour:
			return "NOW+" + since.Round(precision).String()
		case before.Abs() < time.Second || len(s) == 13: // it was so many milliseconds from now, and is again
			return "FUTURE"
		}
		return s
	}), left
}

// The common cases of acquire.lua and release.lua do what the rest of them would.
func TestTheCommonCasesAreAsTheOthers(t *testing.T) {
	t.Parallel()
	pair := func(name, condition, otherwise string) [2]*redis.Script {
		text := script.Text(name)
		if strings.Count(text, condition) != 1 {
			t.Fatalf("%s has not %q once", name, condition)
		}
		return [2]*redis.Script{redis.NewScript(text),
			redis.NewScript(strings.Replace(text, condition, otherwise, 1))}
	}
	acquireScript, releaseScript := pair(
		"permit/acquire", "if not queue and ARGV[12]", "if false and ARGV[12]"),
		pair("permit/release", "if not rest or", "if true or")
	worlds := map[string][]func(rdb *redis.Client){
		"none":                             {},
		"free":                             {fields("m", "t", 3000, "n", 5)},
		"free, and a queue was there":      {fields("m", "t", 3000, "n", 5, "q", 1000)},
		"free, of a clock ahead":           {fields("m", "t", future, "n", 5)},
		"an odd limit":                     {fields("m", "t", 3000, "n", "many")},
		"an odd token":                     {fields("m", "t", "x", "n", 5)},
		"a lower limit":                    {fields("m", "t", 3000, "n", 2)},
		"a lower limit that was set":       {fields("m", "t", 3000, "n", 2, "i", "request")},
		"a higher limit that was set":      {fields("m", "t", 3000, "n", 9, "i", "request")},
		"this one is over":                 {fields("m", "t", 3000, "n", 5, owner, future)},
		"a queue":                          {fields("m", "t", 3000, "n", 5, "q", 1000), queued},
		"a queue without metadata":         {queued},
		"another holds":                    {holders("other:1", 2, future)},
		"others hold all":                  {holders("other:1", 2, future, "other:2", 3, future)},
		"a writer holds":                   {holders("other:1", all, future)},
		"it holds":                         {holders(owner, 1, future)},
		"it holds all":                     {holders(owner, all, future), fields("m", "t", first+999)},
		"it holds all, and tokens went on": {holders(owner, all, future)},
		"it and another hold":              {holders(owner, 2, future, "other:1", 3, future)},
		"it holds, and others wait":        {holders(owner, 5, future), fields("m", "q", 1000), queued},
		"it held, and its lease is over":   {holders(owner, 1, 1000)},
		"it and another, an odd number in use": {holders(owner, 2, future, "other:1", 3, future),
			fields("e", "u", "x")},
		"holders, and no number in use": {holders("other:1", 2, future), func(rdb *redis.Client) {
			rdb.HDel(bg, "e", "u")
		}},
		"holders were deleted": {holders("other:1", 2, future), func(rdb *redis.Client) {
			rdb.Del(bg, "h")
		}},
		"what they hold was deleted": {holders("other:1", 2, future), func(rdb *redis.Client) {
			rdb.Del(bg, "e")
		}},
	}
	// A release leaves leases that are over to the next one that asks.
	onlyAcquire := map[string][]func(rdb *redis.Client){
		"another held, and its lease is over": {holders("other:1", 5, 1000)},
		"one holds, and one's lease is over":  {holders("other:1", 3, 1000, "other:2", 2, future)},
	}
	rdb := testredis.Start(t).Client(t)
	compare := func(what string, world []func(rdb *redis.Client), both [2]*redis.Script, argv ...any) {
		t.Helper()
		for _, ttl := range []time.Duration{0, 40 * time.Second, 200 * time.Second} { // none, due, not due
			var got [2]string
			var left [2][]time.Duration
			for i, script := range both {
				testlock.Must(t, rdb.FlushAll(bg).Err())
				for _, set := range world {
					set(rdb)
				}
				for _, key := range []string{"h", "m", "e"} {
					if ttl != 0 {
						rdb.PExpire(bg, key, ttl)
					}
				}
				got[i], left[i] = result(rdb, script, argv)
			}
			if got[0] != got[1] {
				t.Errorf("%s, %v, %v:\n%s, not\n%s", what, argv, ttl, got[0], got[1])
			}
			for j := range left[0] {
				if d := left[0][j] - left[1][j]; d.Abs() > 5*time.Second {
					t.Errorf("%s, %v, %v: keys last for %v, not %v", what, argv, ttl, left[0], left[1])
				}
			}
		}
	}
	acquires := func(name string, world []func(rdb *redis.Client)) {
		for _, n := range []int{1, 3, all} {
			for _, liveness := range []int{0, 15000} {
				compare("acquire: "+name, world, acquireScript, owner, n, future, 30000, "about", 60000,
					liveness, "lockline:s:", "NONCE", "1", all, "")
			}
		}
	}
	for name, world := range worlds {
		acquires(name, world)
		for _, token := range []any{"", first, 77} {
			for _, late := range []any{"0", future} {
				for _, lastUsed := range []any{"", first, first + 5} {
					compare("release: "+name, world, releaseScript, owner, token, "lockline:s:", 60000,
						late, lastUsed)
				}
			}
		}
	}
	for name, world := range onlyAcquire {
		acquires(name, world)
	}
}

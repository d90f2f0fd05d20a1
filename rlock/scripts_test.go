package rlock_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
)

// The common cases of lock/acquire.lua and lock/release.lua have the same effect as the rest of these
// scripts.
func TestTheCommonCaseIsAsTheOthers(t *testing.T) {
	for _, shared := range []bool{false, true} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			commonCaseIsAsTheOthers(t, w.Client, shared)
		})
	}
}

// withAndWithout returns a script of a lock, and the same script without its common case. old is a text that
// occurs only in the common case, and text replaces it.
func withAndWithout(t *testing.T, name, old, text string) [2]*redis.Script {
	t.Helper()
	whole := script.Text("lock/" + name)
	if strings.Count(whole, old) != 1 {
		t.Fatalf("it has not %q once: %s", old, whole)
	}
	return [2]*redis.Script{redis.NewScript(whole), redis.NewScript(strings.Replace(whole, old, text, 1))}
}

// commonCaseIsAsTheOthers compares the effects of the scripts on a lock. If shared is true, the lock has
// permits.
func commonCaseIsAsTheOthers(t *testing.T, rdb *redis.Client, shared bool) {
	t.Helper()
	acquire := withAndWithout(t, "acquire", "and expiry >= now", "and false and expiry >= now")
	release := withAndWithout(t, "release", "if held[1] == owner and", "if false and")

	const owner, last, future, all = "s:7", "1000", "4102444800000001", "1000000000"
	hashes := map[string][]any{
		"none":                       nil,
		"released":                   {"token", last, "released", last, "releaser", "s:6", "lost", "4"},
		"lost":                       {"token", last, "released", "999", "releaser", "s:6"},
		"lost, the first":            {"token", last},
		"lost, its lease is over":    {"token", last, "owner", "s:6", "ends", "5", "lingers", "1"},
		"only tombstones":            {"s:5", future},
		"this one is over":           {"token", last, "released", last, "releaser", owner},
		"this one is buried":         {"token", last, "released", last, "releaser", "s:6", owner, future},
		"released, of a clock ahead": {"token", future, "released", future, "releaser", "s:6"},
		"lost, of a clock ahead":     {"token", future, "released", last, "releaser", "s:6"},
		"released, and nobody waits": {"token", last, "released", last, "queued", last},
		"released, and others wait":  {"token", last, "released", last, "queued", last},
		"held by another":            {"token", last, "owner", "s:6", "ends", future},
		"held by this one": {"token", last, "owner", owner, "ends", future, "count", "1",
			"change", "0"},
		"held, and others wait": {"token", last, "owner", owner, "ends", future, "queued", last},
		"held, with a floor":    {"token", last, "owner", owner, "ends", future, "floor", "3000"},
		"held, and kept":        {"token", last, "owner", owner, "ends", future, "lingers", "1"},
		"its lease is over":     {"token", last, "owner", owner, "ends", "5"},
	}
	permits := map[string][]any{
		"free permits":        {"token", last, "released", last, "permits", "2", "limit", "5"},
		"an odd limit":        {"token", last, "released", last, "permits", "2", "limit", "many"},
		"a lower limit":       {"token", last, "released", last, "limit", "2"},
		"a lower limit, set":  {"token", last, "released", last, "limit", "2", "limiter", "s:3"},
		"a higher limit, set": {"token", last, "released", last, "limit", "9", "limiter", "s:3"},
		"free, and shared":    {"token", last, "released", last, "limit", "5"},
		"held, and shared": {"token", last, "owner", "s:6", "ends", future,
			"permits", "2", "limit", "5"},
		"held by it, and shared": {"token", last, "owner", owner, "ends", future,
			"permits", "1", "limit", "5"},
		"a writer holds": {"token", last, "owner", "s:6", "ends", future,
			"permits", all, "limit", all},
		"it holds all": {"token", last, "owner", owner, "ends", future,
			"permits", all, "limit", all},
		"it holds, others wait": {"token", last, "owner", owner, "ends", future,
			"permits", "2", "limit", "5"},
		"it holds, one was above": {"token", last, "owner", owner, "ends", future,
			"permits", "2", "floor", "1004"},
	}
	if shared {
		maps.Copy(hashes, permits)
	}
	for name, hash := range hashes {
		for _, ttl := range []time.Duration{80 * time.Second, 100 * time.Second} { // to be extended, or not
			for what, of := range map[string]struct {
				both [2]*redis.Script
				argv []any
			}{
				"acquire": {acquire, []any{owner, 1, int64(1) << 52, 30000, "about", 60000, 15000,
					"lockline:s:", "", 0}},
				"acquire all": {acquire, []any{owner, all, int64(1) << 52, 30000, "about", 60000, 0,
					"lockline:s:", "", 0}},
				"release":                {release, []any{owner, last, "lockline:s:", 60000, 0, 1005}},
				"release, none was used": {release, []any{owner, last, "lockline:s:", 60000, 0, 0}},
				"release of any":         {release, []any{owner, "", "lockline:s:", 60000, 0, 0}},
				"release, a late copy":   {release, []any{owner, last, "lockline:s:", 60000, future, 0}},
				"release, not known":     {release, []any{owner, last, "lockline:s:", 60000, 0, ""}},
			} {
				var got [2]string
				var left [2]time.Duration
				for i, sc := range of.both {
					l := testlock.Prefix(rdb) + ":l"
					q, w, h := l+":q", l+":w", l+":h"
					testlock.Must(t, rdb.Del(bg, l, q, w, h).Err())
					keys, argv := []string{l, q, w}, of.argv
					if shared {
						keys = append(keys, h)
						if len(argv) == 10 {
							argv = append(slices.Clip(argv), "", "5", "")
						}
					}
					if strings.HasSuffix(name, "shared") {
						rdb.ZAdd(bg, h, redis.Z{Score: 4102444800000001, Member: "other:2"})
						rdb.HSet(bg, l, "shared", "2", "held other:2", "2 900 - about", "floor", last)
					}
					now := rdb.Time(bg).Val()
					if hash != nil {
						testlock.Must(t, rdb.HSet(bg, l, hash...).Err())
						testlock.Must(t, rdb.HSet(bg, l, "lives", now.Add(ttl).UnixMicro()).Err())
						testlock.Must(t, rdb.PExpire(bg, l, ttl).Err())
					}
					if strings.HasSuffix(name, "others wait") {
						testlock.Must(t, rdb.ZAdd(bg, q, redis.Z{Score: 1000, Member: "other:1"}).Err())
						testlock.Must(t, rdb.HSet(bg, w, "other:1", future+" 1 30000 nonce about").Err())
					}
					reply, err := sc.Run(bg, rdb, keys, argv...).Text()
					state := []any{reply, err}
					fields := rdb.HGetAll(bg, l).Val()
					for _, field := range sorted(fields) {
						state = append(state, field, fields[field])
					}
					for _, lease := range rdb.ZRangeWithScores(bg, h, 0, -1).Val() {
						state = append(state, lease.Member, int64(lease.Score))
					}
					left[i] = rdb.PTTL(bg, l).Val()
					got[i] = fmt.Sprintln(state...)
				}
				if a, b := blurred(got[0]), blurred(got[1]); a != b {
					t.Errorf("%s: %s, %v: %s, not %s", what, name, ttl, a, b)
				}
				if d := left[0] - left[1]; d.Abs() > 5*time.Second {
					t.Errorf("%s: %s, %v: the hash lives for %v, not %v", what, name, ttl, left[0], left[1])
				}
			}
		}
	}
}

// blurred replaces Redis times and names of scripts in a text by words, so that texts of different runs are
// the same.
func blurred(text string) string {
	text = regexp.MustCompile(`(f_)?[0-9a-f]{40}`).ReplaceAllString(text, "SCRIPT") // of an error
	return regexp.MustCompile(`\b[1-9]\d{12,15}\b`).ReplaceAllString(text, "TIME")
}

func sorted(fields map[string]string) []string { return slices.Sorted(maps.Keys(fields)) }

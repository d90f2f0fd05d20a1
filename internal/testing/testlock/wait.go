package testlock

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// Eventually polls until ok returns true, and stops the test if that takes longer than Patience. It is for
// conditions for which there is no event.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// Receive returns the next value of c, or the zero value when c is closed. It stops the test if neither
// happens within Patience.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("still not: %s", what)
	}
	panic("unreachable")
}

// Renewed waits until renewals have moved the deadline of hold by more than the duration `by`. It stops the
// test if that takes longer than Patience, or if the hold is lost.
func Renewed(t testing.TB, hold *rlock.Hold, by time.Duration) {
	t.Helper()
	until := hold.Deadline().Add(by)
	Eventually(t, "renewed", func() bool {
		if err := hold.Err(); err != nil {
			t.Fatalf("not renewed: %v", err)
		}
		return hold.Deadline().After(until)
	})
}

// OnlyTokens waits until Remembers returns true for each key of the test on the server. It stops the
// test if that takes longer than Patience.
func OnlyTokens(t testing.TB, rdb redis.Cmdable) {
	t.Helper()
	Eventually(t, "only tokens are left", func() bool {
		keys, err := rdb.Keys(bg, pattern(rdb)).Result()
		Must(t, err)
		return !slices.ContainsFunc(keys, func(key string) bool {
			lock := rdb.HGetAll(bg, key).Val() // empty if the key is not a hash
			return !Remembers(key, lock, rdb.Time(bg).Val())
		})
	})
}

// Remembers reports whether a key only remembers tokens, because nobody holds its lock or waits for the lock.
// If the key is a hash, the map lock must have its fields. now must be the time of the server.
func Remembers(key string, lock map[string]string, now time.Time) bool {
	if strings.HasPrefix(key, "lockline_lock_memory:") {
		return true
	}
	_, held := lock["owner"]
	_, waits := lock["queued"]
	ends, _ := strconv.ParseInt(lock["ends"], 10, 64)
	return lock["lives"] != "" && !waits && (!held || ends <= now.UnixMicro())
}

// NoSubscriptions waits until no client is subscribed to a channel of the test. It stops the test if that
// takes longer than Patience.
func NoSubscriptions(t testing.TB, rdb redis.Cmdable) {
	t.Helper()
	Eventually(t, "no subscription is left", func() bool {
		channels, err := rdb.PubSubChannels(bg, pattern(rdb)).Result()
		Must(t, err)
		return len(channels) == 0
	})
}

//go:build nightly

package rlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestAHundredThousandHeldLocksAreCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("memory is not measured under the race detector")
	}
	// each connection has 64 KB.
	rdb := testredis.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = 2 })
	// With this long lease, no renewal is in flight when memory is measured.
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Hour))
	if each := bytesPerHold(t, s, 100_000); each > 1400 {
		t.Errorf("%.0f bytes per held lock", each)
	}
	testlock.Must(t, s.Shutdown(testlock.Bounded(t))) // slow machines need longer than Close allows
	testlock.OnlyTokens(t, rdb)
}

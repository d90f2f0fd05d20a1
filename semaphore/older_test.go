package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// anyPermits is a read-write lock or a permit of a semaphore.
type anyPermits struct {
	rlock.Locker
	inspect func(ctx context.Context) (rlock.State, error)
}

// An older version of Lockline holds permits. In its layout, the key is a sorted set. Nobody gets permits
// until this key has expired, and the errors of all calls say why.
func TestPermitsOfAnOlderVersionAreAnErrorAndNobodyGetsAny(t *testing.T) {
	for kind, newLocker := range map[string]func(s *rlock.Session) anyPermits{
		"w": func(s *rlock.Session) anyPermits {
			rw := rwlock.New(s, "x")
			return anyPermits{rw, rw.Inspect}
		},
		"p": func(s *rlock.Session) anyPermits {
			sem := semaphore.New(s, "x", 1)
			return anyPermits{sem.Locker(1), sem.Inspect}
		},
	} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			key, rdb := "lockline:"+kind+":{x}", w.Client
			rdb.ZAdd(bg, key, redis.Z{Score: 946684830000000, Member: "s:1"})
			rdb.HSet(bg, key+":h", "s:1", "1 946684800000000 12@there ", "u", "1")
			for _, k := range []string{key, key + ":h"} {
				rdb.PExpire(bg, k, 30*time.Second)
			}
			l := newLocker(testlock.NewSession(t, w.Client))
			_, _, tried := l.TryLock(bg)
			_, _, locked := l.Lock(bg, rlock.WaitAtMost(10*time.Second))
			_, seen := l.inspect(bg)
			for name, err := range map[string]error{"TryLock": tried, "Lock": locked, "Inspect": seen} {
				if err == nil || !strings.Contains(err.Error(), "this version of Lockline did not write") ||
					!strings.Contains(err.Error(), key) {
					t.Errorf("%s, %s: %v", kind, name, err)
				}
			}
			time.Sleep(30 * time.Second)
			testlock.Works(t, l)
		})
	}
}

package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// The server answers, but the client's pool has a single connection, and another command uses it.
func TestCallsEndWithTheirContextsWhereThePoolIsExhausted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for name, locker := range map[string]func(s *rlock.Session, name string) rlock.Locker{
		"rlock":    func(s *rlock.Session, name string) rlock.Locker { return rlock.New(s, name) },
		"fairlock": func(s *rlock.Session, name string) rlock.Locker { return fairlock.New(s, name) },
		"rwlock":   func(s *rlock.Session, name string) rlock.Locker { return rwlock.New(s, name) },
		"semaphore": func(s *rlock.Session, name string) rlock.Locker {
			return semaphore.New(s, name, 1).Locker(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
			s := testlock.NewSession(t, rdb)
			_, hold := testlock.Lock(t, locker(s, name), bg)
			taken := make(chan error)
			go func() { taken <- rdb.BLPop(bg, 4*time.Second, "none-"+name).Err() }()
			testlock.Eventually(t, "the connection is taken", func() bool {
				return rdb.PoolStats().IdleConns == 0
			})
			for what, call := range map[string]func(ctx context.Context) error{
				"Unlock": hold.Unlock,
				"Lock": func(ctx context.Context) error {
					_, _, err := locker(s, name+" to lock").Lock(ctx)
					return err
				},
				"TryLock": func(ctx context.Context) error {
					_, _, err := locker(s, name+" to try").TryLock(ctx)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
				start := time.Now()
				err := call(ctx)
				cancel()
				testlock.WantError(t, what, err, context.DeadlineExceeded)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("%s returned after %v", what, took)
				}
			}
			if err := <-taken; err != redis.Nil {
				t.Error(err)
			}
		})
	}
}

package rlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// With the go-redis that is there: it is by its hooks, and by what a copy of a client has of them, that this works.
func TestALockOfAServerNearbyIsAskedForInTheCallersGoroutine(t *testing.T) {
	for _, x := range []struct {
		kind     string
		newMutex testlock.Maker
		others   int64 // a place in a fair queue is asked for by a goroutine for all that come at one time
	}{{"reentrant", rlock.New, 0}, {"fair", fairlock.New, 1}} {
		t.Run(x.kind, func(t *testing.T) {
			rdb := testredis.Start(t).Client(t)
			var prompt, others atomic.Int64
			rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
				if fmt.Sprintf("%T", cmds[0]) == "wire.promptRequest" {
					prompt.Add(1)
				} else if cmds[0].Name() == "evalsha" {
					others.Add(1)
				}
				return next()
			}))
			m := x.newMutex(testlock.NewSession(t, rdb), "x")
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			testlock.Eventually(t, "the requests of a cycle are prompt", func() bool {
				prompt.Store(0)
				others.Store(0)
				_, hold := testlock.Lock(t, m, ctx)
				testlock.Must(t, hold.Unlock(ctx))
				return prompt.Load() == 2-x.others && others.Load() == x.others
			})
		})
	}
}

package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })

	t.Run("all keys of a lock are in one slot, whatever its name", func(t *testing.T) {
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		for i, name := range append(names, "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8") {
			ctx, hold := testlock.Lock(t, rlock.New(a, name), bg)
			_, nested := testlock.Lock(t, rlock.New(a, name), ctx)
			if _, _, err := rlock.New(b, name).TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
				t.Errorf("%q: %v", name, err)
			}
			if st := testlock.Inspect(t, rlock.New(b, name)); st.Count != 2 {
				t.Errorf("%q: %+v", name, st)
			}
			testlock.Unlock(t, nested)
			if i%2 == 0 {
				testlock.Unlock(t, hold)
			} else if held, err := rlock.New(b, name).ForceUnlock(bg); err != nil || !held {
				t.Errorf("%q: ForceUnlock: %v, %v", name, held, err)
			}
		}
		tagged := testlock.NewSession(t, rdb, rlock.WithPrefix("{app}"))
		_, hold := testlock.Lock(t, rlock.New(tagged, "}{"), bg)
		testlock.Unlock(t, hold)
		redisson := testlock.NewSession(t, rdb, rlock.RedissonKeys())
		for _, name := range []string{"x", "a{b}c"} {
			_, hold := testlock.Lock(t, rlock.New(redisson, name), bg)
			testlock.Unlock(t, hold)
		}
	})

	t.Run("an unlock wakes a waiter wherever the lock lives", func(t *testing.T) {
		waits := make(testlock.Waits, 1)
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb, rlock.WithObserver(waits))
		for i := range 9 {
			name := fmt.Sprint("wake", i)
			_, first := testlock.Lock(t, rlock.New(a, name), bg)
			got := testlock.Go(bg, rlock.New(b, name), rlock.WaitAtMost(15*time.Second)) // less than the lease
			testlock.Receive(t, "waiting", waits)
			testlock.Unlock(t, first)
			testlock.Unlock(t, testlock.Granted(t, got))
		}
	})

	t.Run("Close gives back on every master", func(t *testing.T) {
		s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
		testlock.Must(t, err)
		var ms []*rlock.Mutex
		var holds []*rlock.Hold
		for i := range 30 {
			m := rlock.New(s, fmt.Sprint("close", i))
			_, h := testlock.Lock(t, m, bg)
			ms, holds = append(ms, m), append(holds, h)
		}
		testlock.Must(t, s.Close())
		other := testlock.NewSession(t, rdb)
		for i, m := range ms {
			if testlock.Inspect(t, rlock.New(other, m.Name())).Held || !errors.Is(holds[i].Err(), rlock.ErrClosed) {
				t.Errorf("%s is still held", m.Name())
			}
		}
	})

	t.Run("a frozen master delays no other master's renewals", func(t *testing.T) {
		s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(1500*time.Millisecond))
		frozen := cluster.Nodes[0]
		var mu sync.Mutex // guards the maps' fill
		onFrozen, elsewhere := map[*rlock.Hold]context.Context{}, map[*rlock.Hold]context.Context{}
		for i := range 30 {
			name := fmt.Sprint("renew", i)
			ctx, h := testlock.Lock(t, rlock.New(s, name), bg)
			mu.Lock()
			if cluster.Master(t, "lockline:r:{"+name+"}") == frozen {
				onFrozen[h] = ctx
			} else {
				elsewhere[h] = ctx
			}
			mu.Unlock()
		}
		if len(onFrozen) == 0 || len(elsewhere) == 0 {
			t.Fatal("the names do not spread")
		}
		frozen.Freeze()
		since := time.Now()
		for _, ctx := range onFrozen {
			testlock.Receive(t, "the frozen ones end at their deadline", ctx.Done())
		}
		// By now whoever was not renewed since the freeze is lost, too. (Not much
		// later the Cluster itself goes down for want of a master.)
		for h := range elsewhere {
			if h.Err() != nil || h.Deadline().Before(since.Add(1400*time.Millisecond)) {
				t.Errorf("%s: not renewed because another master froze: %v", h.Name(), h.Err())
			}
		}
		frozen.Thaw()
		for h := range onFrozen {
			testlock.WantError(t, "Unlock", h.Unlock(bg), rlock.ErrLost)
		}
	})
}

func TestAcrossASentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, 1)
	rdb := sentinel.FailoverClient(t, func(o *redis.FailoverOptions) {
		o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
	_, hold := testlock.Lock(t, rlock.New(a, "x"), bg)
	testlock.Must(t, rdb.Do(bg, "wait", 1, 1000).Err()) // replicated, so the failover keeps it
	old := sentinel.Master(t)
	old.Freeze()
	sentinel.AwaitFailover(t, old)
	testlock.Renewed(t, hold, time.Second)
	testlock.Must(t, hold.Err())
	if _, _, err := rlock.New(b, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock after the failover: %v", err)
	}
	testlock.Unlock(t, hold)
	next := testlock.Take(t, rlock.New(b, "x"))
	testlock.WantAfter(t, next, hold.Token())
	testlock.Unlock(t, next)
}

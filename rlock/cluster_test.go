package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })

	t.Run("all keys of a lock are in one slot, whatever its name", func(t *testing.T) {
		a, b := newSession(t, rdb), newSession(t, rdb)
		for i, name := range append(names, "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8") {
			ctx, hold := lock(t, rlock.New(a, name), bg)
			_, nested := lock(t, rlock.New(a, name), ctx)
			if _, _, err := rlock.New(b, name).TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
				t.Errorf("%q: %v", name, err)
			}
			if st := inspect(t, rlock.New(b, name)); st.Count != 2 {
				t.Errorf("%q: %+v", name, st)
			}
			unlock(t, nested)
			if i%2 == 0 {
				unlock(t, hold)
			} else if held, err := rlock.New(b, name).ForceUnlock(bg); err != nil || !held {
				t.Errorf("%q: ForceUnlock: %v, %v", name, held, err)
			}
		}
		tagged := newSession(t, rdb, rlock.WithPrefix("{app}"))
		_, hold := lock(t, rlock.New(tagged, "}{"), bg)
		unlock(t, hold)
		redisson := newSession(t, rdb, rlock.RedissonKeys())
		for _, name := range []string{"x", "a{b}c"} {
			_, hold := lock(t, rlock.New(redisson, name), bg)
			unlock(t, hold)
		}
	})

	t.Run("an unlock wakes a waiter wherever the lock lives", func(t *testing.T) {
		waits := make(waitingSignal, 1)
		a, b := newSession(t, rdb), newSession(t, rdb, rlock.WithObserver(waits))
		for i := range 9 {
			name := fmt.Sprint("wake", i)
			_, first := lock(t, rlock.New(a, name), bg)
			got := make(chan *rlock.Hold, 1)
			go func() {
				_, h, err := rlock.New(b, name).Lock(bg, rlock.WaitAtMost(15*time.Second)) // less than the lease
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got <- h
			}()
			within(t, "waiting", waits)
			unlock(t, first)
			if h := <-got; h != nil {
				unlock(t, h)
			}
		}
	})

	t.Run("Close gives back on every master", func(t *testing.T) {
		s, err := rlock.NewSession(rdb, rlock.WithLogger(quiet))
		must(t, err)
		var ms []*rlock.Mutex
		var holds []*rlock.Hold
		for i := range 30 {
			m := rlock.New(s, fmt.Sprint("close", i))
			_, h := lock(t, m, bg)
			ms, holds = append(ms, m), append(holds, h)
		}
		must(t, s.Close())
		other := newSession(t, rdb)
		for i, m := range ms {
			if inspect(t, rlock.New(other, m.Name())).Held || !errors.Is(holds[i].Err(), rlock.ErrClosed) {
				t.Errorf("%s is still held", m.Name())
			}
		}
	})

	t.Run("a frozen master delays no other master's renewals", func(t *testing.T) {
		s := newSession(t, rdb, rlock.WithWatchdogTimeout(1500*time.Millisecond))
		frozen := cluster.Nodes[0]
		var mu sync.Mutex // guards the maps' fill
		onFrozen, elsewhere := map[*rlock.Hold]context.Context{}, map[*rlock.Hold]context.Context{}
		for i := range 30 {
			name := fmt.Sprint("renew", i)
			ctx, h := lock(t, rlock.New(s, name), bg)
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
			within(t, "the frozen ones end at their deadline", ctx.Done())
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
			if err := h.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		}
	})
}

func TestAcrossASentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, 1)
	rdb := sentinel.FailoverClient(t, func(o *redis.FailoverOptions) {
		o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	a, b := newSession(t, rdb), newSession(t, rdb)
	_, hold := lock(t, rlock.New(a, "x"), bg)
	must(t, rdb.Do(bg, "wait", 1, 1000).Err()) // replicated, so the failover keeps it
	old := sentinel.Master(t)
	old.Freeze()
	sentinel.AwaitFailover(t, old)
	until := hold.Deadline().Add(time.Second)
	eventually(t, "renewed on the new master", func() bool { return hold.Deadline().After(until) || hold.Err() != nil })
	must(t, hold.Err())
	if _, _, err := rlock.New(b, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock after the failover: %v", err)
	}
	unlock(t, hold)
	_, next := lock(t, rlock.New(b, "x"), bounded(t))
	if next.Token() <= hold.Token() {
		t.Errorf("token %d after %d", next.Token(), hold.Token())
	}
	unlock(t, next)
}

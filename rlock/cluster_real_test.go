package rlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)

	t.Run("all keys of a lock are in one slot, whatever its name", func(t *testing.T) {
		t.Parallel()
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
		s := testlock.NewSession(t, rdb)
		for _, name := range []string{"x", "a{b}c"} {
			_, hold := testlock.Lock(t, redisson.New(s, name), bg)
			testlock.Unlock(t, hold)
		}
	})

	t.Run("an unlock wakes a waiter wherever the lock lives", func(t *testing.T) {
		t.Parallel()
		waits := make(testlock.Waits, 1)
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb, rlock.WithObserver(waits))
		for i := range 9 {
			name := fmt.Sprint("wake", i)
			_, first := testlock.Lock(t, rlock.New(a, name), bg)
			// WaitAtMost is shorter than the lease.
			got := testlock.Go(bg, rlock.New(b, name), rlock.WaitAtMost(15*time.Second))
			testlock.Receive(t, "waiting", waits)
			testlock.Unlock(t, first)
			testlock.Unlock(t, testlock.Granted(t, got))
		}
	})

	t.Run("Close gives back on every master", func(t *testing.T) {
		t.Parallel()
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
			if testlock.Inspect(t, rlock.New(other, m.Name())).Held ||
				!errors.Is(holds[i].Err(), rlock.ErrClosed) {
				t.Errorf("%s is still held", m.Name())
			}
		}
	})

	t.Run("a waiter for a lock of Redisson is told, however that is done", func(t *testing.T) {
		t.Parallel()
		waits := make(testlock.Waits, 1)
		for name, c := range map[string]struct {
			option   rlock.SessionOption // nil means no option
			newMutex testlock.AnyMaker
		}{
			"auto":    {nil, testlock.Any(redisson.New)},
			"classic": {rlock.WithClassicPubSub(), testlock.Any(redisson.New)},
			"fenced":  {nil, testlock.Any(redisson.NewFenced)},
		} {
			options := []rlock.SessionOption{c.option, rlock.WithWatchdogTimeout(2 * testlock.Patience)}
			a := c.newMutex(testlock.NewSession(t, rdb, options...), name)
			b := c.newMutex(testlock.NewSession(t, rdb, append(options, rlock.WithObserver(waits))...), name)
			for _, forced := range []bool{false, true} {
				hold := testlock.Take(t, a)
				got := testlock.Go(bg, b)
				testlock.Receive(t, "waiting", waits)
				if forced {
					held, err := b.ForceUnlockToken(bg, hold.Token())
					if err != nil || !held {
						t.Errorf("%v, %v", held, err)
					}
					testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
				} else {
					testlock.Unlock(t, hold)
				}
				testlock.Unlock(t, testlock.Granted(t, got))
			}
		}
	})

	t.Run("requests are sent in their caller's goroutine", func(t *testing.T) {
		t.Parallel()
		m := rlock.New(testlock.NewSession(t, cluster.Client(t)), "prompt")
		for range 20 { // until the session knows that replies come quickly
			testlock.Works(t, m)
		}
	})
}

func TestOnASentinelGroup(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 1)
	hold := testlock.Take(t, rlock.New(testlock.NewSession(t, group.FailoverClient(t)), "x"))
	testlock.Must(t, hold.WaitReplicas(testlock.Bounded(t), 1))
	testlock.Must(t, hold.Extend(bg, time.Minute))
	testlock.Unlock(t, hold)
}

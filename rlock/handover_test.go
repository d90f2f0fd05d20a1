package rlock_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// ask starts n goroutines that lock m, and returns when each of them waits or has the lock.
func ask(m *rlock.Mutex, n int, options ...rlock.Option) <-chan handed {
	in := queueUp(m, n, bg, options...)
	time.Sleep(time.Millisecond) // so that all of them have joined
	synctest.Wait()
	return in
}

func TestALockIsRenewedForWhoItIsHandedToThoughItWasNotForTheOneBefore(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithHandover(time.Hour)), "x")
		_, first := testlock.Lock(t, m, bg)
		in := ask(m, 2)
		testlock.Unlock(t, first)
		outer := <-in
		_, inner := testlock.Lock(t, m, outer.Ctx, rlock.WithLease(10*time.Second))
		testlock.Unlock(t, outer.Hold)
		testlock.Unlock(t, inner)
		last := <-in
		if last.Hold.Token() != inner.Token()+1 {
			t.Fatal("it was not handed over in memory")
		}
		time.Sleep(time.Hour)
		testlock.Must(t, last.Hold.Err())
		testlock.Unlock(t, last.Hold)
	})
}

func TestWhoIsCanceledAtTheHandOverNeverHeldIt(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var rec recorder
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithObserver(&rec),
			rlock.WithHandover(time.Hour)), "x")
		for range 100 {
			_, holding := testlock.Lock(t, m, bg)
			in := ask(m, 1) // the waiter that is served first
			ctx, cancel := context.WithCancel(bg)
			left := make(chan error)
			go func() { left <- testlock.Cycle(ctx, m) }()
			time.Sleep(time.Millisecond)
			synctest.Wait()
			testlock.Unlock(t, holding)
			got := <-in
			cancel()
			if err := got.Hold.Unlock(bg); err != nil {
				t.Error(err)
			}
			if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			synctest.Wait()
			if testlock.Inspect(t, m).Held {
				t.Fatal("it is held by nobody")
			}
		}
		acquired, ended := map[int64]int{}, map[int64]int{}
		for _, e := range rec.events {
			switch e.Type {
			case rlock.EventAcquired:
				acquired[e.Token]++
			case rlock.EventReleased, rlock.EventLost:
				ended[e.Token]++
			}
		}
		if !maps.Equal(acquired, ended) {
			for token, n := range ended {
				if acquired[token] != n {
					t.Fatalf("acquired %d times: %d, which ended %d times", acquired[token], token, n)
				}
			}
			t.Fatal("what was acquired did not end")
		}
	})
}

// onGrant makes the client call f when the server has granted a lock, before the caller receives the reply.
func onGrant(rdb *redis.Client, f func()) {
	rdb.AddHook(testlock.Hook{Command: func(
		ctx context.Context, cmd redis.Cmder, next redis.ProcessHook,
	) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(interface{ Val() string }); ok && strings.HasPrefix(reply.Val(), "G ") {
			f()
		}
		return err
	}})
}

func TestAGrantThatNobodyWantedGivesItsTokensBack(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		first := hold.Token()
		testlock.Unlock(t, hold)
		leave := func() {}
		onGrant(w.Client, func() { leave() })
		for range 50 {
			ctx, cancel := context.WithCancel(bg)
			leave = func() {
				cancel()
				time.Sleep(time.Microsecond) // the caller of Lock leaves
			}
			if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Microsecond)
			synctest.Wait()
		}
		leave = func() {}
		_, hold = testlock.Lock(t, m, bg)
		// Otherwise tokens would run ahead of the clock, and go back when Redis forgets the last one.
		if ahead := hold.Token() - time.Now().UnixMicro(); ahead > 1000 {
			t.Errorf("token %d after %d is ahead of the clock by %d us", hold.Token(), first, ahead)
		}
		testlock.Unlock(t, hold)
	})
}

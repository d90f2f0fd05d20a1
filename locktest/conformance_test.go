package locktest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

// wait1 starts a Lock that has to wait.
func wait1(t testing.TB, m locker, ctx context.Context, options ...rlock.Option) <-chan *rlock.Hold {
	t.Helper()
	got := make(chan *rlock.Hold, 1)
	go func() {
		_, hold, err := m.Lock(ctx, options...)
		if err != nil {
			t.Error(err)
		}
		testlock.Keep(t, hold)
		got <- hold
	}()
	time.Sleep(settled)
	if len(got) > 0 {
		t.Error("it did not have to wait")
	}
	return got
}

// What only locktest has.

func TestToOccupyALockTakesItFromItsHolder(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		var space locktest.Space
		m := space.New("x")
		ctx, hold := testlock.Lock(t, m, bg)
		below := make(chan error, 1)
		_, nested := testlock.Lock(t, m, ctx)
		go func() { _, _, err := m.Lock(context.WithoutCancel(ctx)); below <- err }()
		got := wait1(t, m, bg)
		free := space.Occupy("x")
		if context.Cause(ctx) != rlock.ErrLost {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		testlock.WantError(t, "who waited below the hold", <-below, rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.WantError(t, "Unlock", nested.Unlock(bg), rlock.ErrLost)
		time.Sleep(time.Hour)
		again := space.Occupy("x") // another one
		free()
		synctest.Wait()
		st := space.Inspect("x")
		if !st.Held || len(st.Queue) != 1 || st.Queue[0].Age < time.Hour || st.Token <= hold.Token() {
			t.Errorf("%+v", st)
		}
		again()
		next := <-got
		again() // does nothing
		if next.Err() != nil || next.Token() <= st.Token {
			t.Errorf("%v, token %d after %d", next.Err(), next.Token(), st.Token)
		}
		testlock.Unlock(t, next)
		if space.Lose("x") || space.Lose("y") {
			t.Error("a free lock was lost")
		}
		space.Occupy("x")
		if !space.Lose("x") || space.Inspect("x").Held {
			t.Error("somebody else cannot lose it")
		}
	})
}

func TestNobodyIsServedInAnOutage(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		var space locktest.Space
		free := space.Occupy("x")
		got := wait1(t, space.New("x"), bg)
		space.Fail(errors.New("outage"))
		free()
		time.Sleep(time.Minute)
		if len(got) > 0 || space.Inspect("x").Held {
			t.Error("the lock was granted")
		}
		space.Fail(nil)
		testlock.Unlock(t, <-got)
	})
}

func TestALossIsImmediateWithoutFakeTime(t *testing.T) {
	var space locktest.Space
	ctx, hold := testlock.Lock(t, space.New("x"), bg)
	if !space.Lose("x") || context.Cause(ctx) != rlock.ErrLost || hold.Err() != rlock.ErrLost {
		t.Errorf("cause %v, Err %v", context.Cause(ctx), hold.Err())
	}
	_, short := testlock.Lock(t, space.New("y", rlock.WithLease(20*time.Millisecond)), bg)
	_, next := testlock.Lock(t, space.New("y"), bg)
	testlock.WantError(t, "Unlock of what ran out", short.Unlock(bg), rlock.ErrLost)
	testlock.Unlock(t, next)
}

func TestGoroutinesMakeNoRace(t *testing.T) {
	var space locktest.Space
	var wg sync.WaitGroup
	inside := 0 // guarded by the lock
	for i := range 8 {
		wg.Go(func() {
			m := space.New("x")
			for n := range 200 {
				ctx, cancel := context.WithTimeout(bg, time.Duration(n)*time.Microsecond)
				held, hold, err := m.Lock(ctx)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if err == nil {
					inside++
					_, nested := testlock.Lock(t, m, context.WithoutCancel(held),
						rlock.WithLease(time.Minute))
					_, _ = hold.Deadline(), hold.Extend(bg, time.Second)
					testlock.Unlock(t, hold)
					if inside--; inside != 0 {
						t.Error("not alone")
					}
					testlock.Unlock(t, nested)
				}
				cancel()
				if i == 0 && n%20 == 0 {
					_ = space.Inspect("x")
				}
			}
		})
	}
	wg.Wait()
}

func TestAZeroLockerIsRefused(t *testing.T) {
	for _, l := range []*locktest.Locker{nil, new(locktest.Locker)} {
		_ = l.Name()
		_, _, locked := l.Lock(bg)
		_, _, tried := l.TryLock(bg)
		done := l.Do(bg, func(context.Context) error { t.Error("it ran"); return nil })
		for _, err := range []error{locked, tried, done} {
			if err == nil || !strings.Contains(err.Error(), "zero Locker") {
				t.Errorf("%v", err)
			}
		}
	}
}

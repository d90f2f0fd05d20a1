package redisson_test

import (
	"context"
	"errors"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// scriptsOf returns the names of the scripts that have run since the last call, and forgets them.
func scriptsOf(net *faultproxy.Proxy) string {
	var names []string
	for _, r := range net.Requests() {
		if name := testlock.Script(r.Script()); name != "" {
			names = append(names, name)
		}
	}
	net.Reset()
	return strings.Join(names, " ")
}

func TestAnUncontendedLockIsTwoRequests(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, redisson.New(testlock.NewSession(t, w.Client), "x"))
		other := testlock.Warm(t, redisson.New(testlock.NewSession(t, w.Client), "x"))
		want := func(what, scripts string) {
			t.Helper()
			if got := scriptsOf(w.Net); got != scripts {
				t.Errorf("%s: %q, want %q", what, got, scripts)
			}
		}
		scriptsOf(w.Net)
		ctx, hold := testlock.Lock(t, m, bg)
		want("Lock", "acquire")
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		want("re-entry", "keep keep")
		_, _, err := other.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		want("TryLock of a held lock", "acquire")
		_, _, err = m.TryLock(bg)
		testlock.WantError(t, "TryLock of the session that has it", err, rlock.ErrLocked)
		want("TryLock of the session that has it", "")
		testlock.Unlock(t, hold)
		want("Unlock", "release")
	})
}

func TestAnUncontendedLockStartsNoGoroutines(t *testing.T) {
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	if metrics.Read(created); created[0].Value.Kind() != metrics.KindUint64 {
		t.Skip("before Go 1.26, nothing tells")
	}
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, redisson.New(testlock.NewSession(t, w.Client), "x"))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		testlock.Must(t, testlock.Cycle(ctx, m)) // from here on the server is known to answer promptly
		metrics.Read(created)
		before := created[0].Value.Uint64()
		for range 100 {
			testlock.Must(t, testlock.Cycle(ctx, m))
		}
		metrics.Read(created)
		if n := created[0].Value.Uint64() - before; n > 10 { // the runtime also starts some
			t.Errorf("%d goroutines for 100 locks", n)
		}
	})
}

// The goroutines of a session take turns: the others send nothing.
func TestOneGoroutineOfASessionAsksAtATimeAndTheyAreServedInTheirOrder(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		hold := testlock.Take(t, redisson.New(testlock.NewSession(t,
			faultproxy.InMemory(t, w.Dial).Client(t)), "x"))
		m := redisson.New(testlock.NewSession(t, w.Client), "x")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				testlock.Must(t, m.Do(bg, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				}))
			})
			synctest.Wait()
		}
		scriptsOf(w.Net)
		const heartbeat = 6 * time.Second // three fifths of the waiter timeout
		time.Sleep(2*heartbeat + heartbeat/2)
		if got := scriptsOf(w.Net); got != "acquire acquire" {
			t.Errorf("20 goroutines have sent %q in two heartbeats", got)
		}
		testlock.Unlock(t, hold)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("served in the order %v", order)
		}
		if got := strings.Count(scriptsOf(w.Net), "acquire"); got != 20 {
			t.Errorf("%d requests for 20 grants", got)
		}
	})
}

func TestTheObserverLearnsOfEachHoldAndOfOneEnd(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var mu sync.Mutex
		var seen []string
		m := redisson.New(testlock.NewSession(t, w.Client, rlock.WithObserver(
			testlock.Observer(func(e rlock.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.LockKind != rlock.KindRedisson || e.Name != "x" || e.HandedOver {
					t.Errorf("%+v", e)
				}
				seen = append(seen, e.Type.String()+strings.Repeat("+", max(0, e.Depth-1)))
			}))), "x")
		want := func(what string, events ...string) {
			t.Helper()
			time.Sleep(time.Millisecond) // a loss is reported by a goroutine of its own
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(seen, events) {
				t.Errorf("%s: %q, want %q", what, seen, events)
			}
			seen = nil
		}
		ctx, outer := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		want("nested", "Acquired", "Acquired+")
		testlock.Unlock(t, outer)
		want("one is left")
		got := testlock.Go(bg, m)
		time.Sleep(time.Millisecond)
		want("another goroutine", "Waiting")
		testlock.Unlock(t, nested)
		next := testlock.Granted(t, got)
		want("it follows", "Released", "Acquired")
		testlock.ForceUnlock(t, m)
		testlock.WantError(t, "Extend", next.Extend(bg, time.Second), rlock.ErrLost)
		want("forced", "Lost")
		_, _, err := m.Lock(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		want("with a context that has ended", "NotAcquired")
	})
}

// Code that the holder calls locks again with the context from outside, and hangs.
func TestALongWaitForTheSessionsOwnHolderIsLoggedOnce(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		log := new(testlock.Log)
		m := redisson.New(testlock.NewSession(t, w.Client, rlock.WithLogger(log.Logger())), "x")
		hold := testlock.Take(t, m)
		got := testlock.Go(bg, m)
		const warning = "have waited for 10 s for a holder of this same session"
		time.Sleep(9 * time.Second)
		if log.Count(warning) != 0 {
			t.Errorf("too early: %v", log)
		}
		time.Sleep(time.Minute)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		if n := log.Count(warning); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

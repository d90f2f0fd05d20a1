package contract

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// forgotten has tests of Holds that the garbage collector collects. The tests need real time, because no Hold
// may be collected in fake time.
var forgotten = map[string]realTest{
	// Proves: no trace
	"AForgottenHoldIsReleasedWhenItIsCollected": {0, func(
		t *testing.T, _ Kind, _ []*redis.Client, process realProcess,
	) {
		m := process().lock("x")
		func() { testlock.Lock(t, m, bg) }()
		testlock.Eventually(t, "released", func() bool { runtime.GC(); return !inspect(t, m).Held })
		// A program may forget a Hold with a fixed lease on purpose, so that work runs at most once in ten
		// minutes.
		func() { testlock.Lock(t, m, bg, rlock.WithLease(10*time.Minute)) }()
		for range 5 {
			runtime.GC()
		}
		if !inspect(t, m).Held {
			t.Error("a fixed lease was cut short")
		}
	}},
	// Proves: exclusion
	"AHoldIsNotReleasedWhileItOrItsContextCanBeReached": {0, func(
		t *testing.T, _ Kind, _ []*redis.Client, process realProcess,
	) {
		type key struct{}
		p, kept := process(), map[string]any{}
		for name, keep := range map[string]func(ctx context.Context, hold *rlock.Hold) any{
			"the Hold":    func(_ context.Context, hold *rlock.Hold) any { return hold },
			"the context": func(ctx context.Context, _ *rlock.Hold) any { return ctx },
			"one with a value": func(ctx context.Context, _ *rlock.Hold) any {
				return context.WithValue(ctx, key{}, 1)
			},
			"one without cancel": func(ctx context.Context, _ *rlock.Hold) any {
				return context.WithoutCancel(ctx)
			},
			"one with a time-out": func(ctx context.Context, _ *rlock.Hold) any {
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				t.Cleanup(cancel)
				return ctx
			},
		} {
			m := p.lock(name)
			kept[name] = func() any {
				ctx, hold := testlock.Lock(t, m, bg)
				return keep(ctx, hold)
			}()
		}
		for range 5 {
			runtime.GC()
		}
		for name, kept := range kept {
			if !inspect(t, p.lock(name)).Held {
				t.Errorf("a lock was released that is in use: %s", name)
			}
			if ctx, ok := kept.(context.Context); ok && ctx.Err() != nil {
				t.Error(context.Cause(ctx))
			}
			runtime.KeepAlive(kept)
		}
	}},
	"AForgottenFixedLeaseKeepsItsOwnerFromNothing": {Reenters, func(
		t *testing.T, _ Kind, _ []*redis.Client, process realProcess,
	) {
		m := process().lock("x")
		owner := rlock.WithOwner(bg)
		short := func() (context.Context, *rlock.Hold) {
			ctx, hold := testlock.Lock(t, m, owner, rlock.WithLease(10*time.Minute))
			force(t, m)
			testlock.WantError(t, "Extend", hold.Extend(bg, time.Hour), rlock.ErrLost)
			return ctx, hold
		}
		gone := func(what string) {
			t.Helper()
			testlock.Eventually(t, what, func() bool {
				runtime.GC()
				_, hold, err := m.TryLock(owner)
				if err != nil && !errors.Is(err, rlock.ErrLost) && !errors.Is(err, rlock.ErrLocked) {
					t.Fatal(err)
				}
				return err == nil && hold.Unlock(bg) == nil
			})
		}
		remembered := func(what string) {
			t.Helper()
			for range 3 {
				runtime.GC()
			}
			_, _, err := m.TryLock(owner)
			testlock.WantError(t, what+" of a lost hold can be reached", err, rlock.ErrLost)
		}
		func() { short() }()
		gone("locked, after a hold was forgotten")
		hold := func() *rlock.Hold { _, h := short(); return h }()
		remembered("the Hold")
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		ctx := func() context.Context { c, _ := short(); return c }()
		remembered("the context")
		runtime.KeepAlive(ctx)
		gone("locked, after a context was forgotten")
	}},
}

package mutex_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

func TestATenureThatIsLostEndsAllItsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t)
		l.OnRenew = func() error { return wire.Unexpected("down") }
		start := time.Now()
		ctx, outer := l.lock(t, bg, mutex.Config{})
		innerCtx, inner := l.lock(t, ctx, mutex.Config{})
		<-ctx.Done()
		if after := time.Since(start); after != protocol.Valid(fake.Config().Lease) {
			t.Errorf("lost after %v", after)
		}
		<-innerCtx.Done()
		for i, hold := range []*mutex.Hold{outer, inner} {
			if err := hold.Err(); !errors.Is(err, failure.ErrLost) {
				t.Errorf("hold %d: %v", i, err)
			}
		}
		for i, ctx := range []context.Context{ctx, innerCtx} {
			if err := context.Cause(ctx); !errors.Is(err, failure.ErrLost) {
				t.Errorf("context %d: %v", i, err)
			}
		}
	})
}

func TestAHoldIsUnlockedOnce(t *testing.T) {
	for _, c := range []struct {
		what     string
		before   func(*lock, *mutex.Hold)
		first    error
		requests []string
	}{
		{"held", func(*lock, *mutex.Hold) {}, nil, []string{"ask", "release 1"}},
		// Redis may still have it.
		{"lost", func(_ *lock, hold *mutex.Hold) { lose(hold) }, failure.ErrLost, []string{"ask", "release any"}},
		{"closed", func(l *lock, _ *mutex.Hold) { _ = l.s.Shutdown(bg) }, failure.ErrClosed, []string{"ask", "release 1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLock(t)
			_, hold := l.lock(t, bg, mutex.Config{})
			c.before(l, hold)
			for i, want := range []error{c.first, failure.ErrNotHeld, failure.ErrNotHeld} {
				if err := hold.Unlock(bg); !errors.Is(err, want) {
					t.Errorf("%s: Unlock number %d: %v", c.what, i+1, err)
				}
			}
			synctest.Wait()
			if requests := l.Requests(); !slices.Equal(requests, c.requests) {
				t.Errorf("%s: %q", c.what, requests)
			}
		})
	}
}

// lose ends the tenure of a hold.
func lose(hold *mutex.Hold) {
	l := mutex.EntryOf(hold).Lock()
	l.Mu.Lock()
	tenure := l.Tenure()
	l.Mu.Unlock()
	tenure.LeaseLost(false)
}

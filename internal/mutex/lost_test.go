package mutex

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestATenureThatIsLostEndsAllItsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		start := time.Now()
		ctx, outer := l.lock(t, bg, Config{})
		innerCtx, inner := l.lock(t, ctx, Config{})
		l.mu.Lock()
		l.OnRenew = func() error { return io.EOF }
		l.mu.Unlock()
		<-ctx.Done()
		if after := time.Since(start); after != protocol.Valid(fake.Config().Lease) {
			t.Errorf("lost after %v", after)
		}
		<-innerCtx.Done()
		for i, hold := range []*Hold{outer, inner} {
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
		before   func(*store, *Hold)
		first    error
		requests []string
	}{
		{"held", func(*store, *Hold) {}, nil, []string{"ask", "release 1"}},
		// Redis may still have it.
		{"lost", func(_ *store, hold *Hold) { lose(hold) }, failure.ErrLost, []string{"ask", "release any"}},
		{"closed", func(l *store, _ *Hold) { _ = l.s.Shutdown(bg) }, failure.ErrClosed, []string{"ask", "release 1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newStore(t)
			_, hold := l.lock(t, bg, Config{})
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
func lose(hold *Hold) {
	l := EntryOf(hold).Lock()
	l.Mu.Lock()
	tenure := l.Tenure()
	l.Mu.Unlock()
	tenure.LeaseLost(false)
}

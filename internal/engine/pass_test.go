package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
)

func TestAHoldPassesWithTheNextTokenUnlessItIsOver(t *testing.T) {
	for name, lost := range map[string]bool{"held": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m, _ := newLock(t, s)
				s.answers <- "G 1000000 7"
				hold := granted(t, lock(t, m, context.Background()))
				e := hold.Of().(*Entry)
				if lost {
					e.g.end(handle.Lost, failure.ErrGone)
				}
				next := e.Pass(context.Background(), &Part{Lost: func() {}})
				switch {
				case lost && (next != nil || e.Err() == nil):
					t.Errorf("passed on: %v", e.Err())
				case !lost && (next == nil || next.Token() != 8 || next.Err() != nil || e.Err() == nil):
					t.Errorf("%+v, and of the former: %v", next, e.Err())
				}
				if next != nil {
					e = next
				}
				_ = e.Unlock(context.Background())
				synctest.Wait()
			})
		})
	}
}

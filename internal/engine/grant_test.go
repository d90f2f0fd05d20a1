package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestALossIsReportedAlsoIfTheSessionClosesAsTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.Session(t, fake.Client(t, func(fake.Call) (string, error) { return "G 1000000 7", nil }))
		lost := 0
		s.Observer = func(_ context.Context, e session.Event) {
			if e.Kind == session.EventLost {
				lost++
			}
		}
		ctx := context.Background()
		closes := func() {
			go func() { _ = s.Shutdown(ctx) }()
			<-s.Closing()
		}
		m := New(s, kind, "x", Config{})
		held, hold, err := m.Acquire(ctx, Exclusive, Config{}, false)
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(held, closes)
		hold.Of().(*Entry).g.LeaseLost(false)
		synctest.Wait()
		if lost != 1 {
			t.Errorf("%d losses reported", lost)
		}
		runtime.KeepAlive(hold)
	})
}

// Two readers share a grant, so the Unlock of the first one sends no request.
func TestTheUnlockOfAReaderReportsALossThatTheTimerHasNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(fake.Session(t, fake.Client(t, func(c fake.Call) (string, error) {
			if c.Is(acquireScript) {
				return "G 1000000 1", nil
			}
			return "R", nil
		})), &Kind{Letter: protocol.Semaphore}, "x", Config{})
		p := m.all.use(m.kind, m.keys)
		defer p.registry.change(p, -1)
		want := Want{N: 1, Limit: 3, Shared: true}
		var holds []*handle.Hold
		for range 2 {
			_, hold, err := m.Acquire(context.Background(), want, Config{}, false)
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, hold)
		}
		p.s.Watchdog.Remove(&p.grants[0].lease) // the grant keeps its deadline, but no timer ends it
		time.Sleep(time.Until(holds[0].Deadline()))
		for _, hold := range holds {
			if err := hold.Unlock(context.Background()); !errors.Is(err, failure.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		}
	})
}

package engine

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

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

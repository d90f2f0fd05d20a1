package mutex

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// answered is a request that is answered after a time.
type answered struct {
	after      time.Duration
	l          *store
	rolledBack atomic.Int64
}

func (r *answered) Send(int, *atomic.Bool) wire.Outcome {
	time.Sleep(r.after)
	return wire.Outcome{Reply: "answer"}
}

func (r *answered) RollBack(o wire.Outcome) {
	if o.Reply == "answer" && !r.l.forgotten() {
		r.rolledBack.Add(1)
	}
}

// ending is a context that a test sees asked for its error.
type ending struct {
	context.Context
	asked func()
}

func (e ending) Err() error { e.asked(); return e.Context.Err() }

func TestAnAbandonedRequestIsRolledBackOnce(t *testing.T) {
	const wait = time.Second
	for _, c := range []struct {
		what       string
		after      time.Duration // the request is answered
		asked      func()        // when the caller has left, and nobody else knows it
		rolledBack int64
	}{
		{"answered in time", wait / 2, func() {}, 0},
		{"answered in the instant in which it is abandoned", wait + 1, func() { time.Sleep(2 * time.Nanosecond) }, 1},
		{"answered after that", 2 * wait, func() {}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newStore(t)
			in, err := l.m.Enter()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(bg, wait)
			defer cancel()
			a := NewAcquisition(ending{ctx, c.asked}, in, Config{})
			r := &answered{after: c.after, l: l}
			o, err := a.Exchange(r)
			if c.rolledBack > 0 && !errors.Is(err, context.DeadlineExceeded) || c.rolledBack == 0 && (err != nil || o.Reply != "answer") {
				t.Errorf("%s: %q, %v", c.what, o.Reply, err)
			}
			in.Leave()
			time.Sleep(2 * wait)
			synctest.Wait()
			if n := r.rolledBack.Load(); n != c.rolledBack {
				t.Errorf("%s: rolled back %d times while the lock was known", c.what, n)
			}
			if !l.forgotten() {
				t.Errorf("%s: the lock is not forgotten", c.what)
			}
		})
	}
}

package contract

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// patience is the ReadTimeout of clients, in fake time.
const patience = 500 * time.Millisecond

// A cycle uses the lock "x" in the process p. The lock is free before and after the cycle. The calls of Lock
// and TryLock in p get ctx, and the cycle returns their errors. Any other error fails the test.
type cycle func(t *testing.T, w *world, p *process, ctx context.Context) error

// cycles has the ways of using a lock. For each of them, disturb disturbs one request in each run.
var cycles = map[string]cycle{
	"a free lock": func(t *testing.T, w *world, p *process, ctx context.Context) error {
		l := p.lock("x")
		held, hold, err := l.Lock(ctx)
		if err != nil {
			return err
		}
		if w.kind.Has&Reenters != 0 {
			_, nested, err := l.Lock(held)
			if err != nil {
				testlock.Unlock(t, hold)
				return err
			}
			if st := inspect(t, w.rival("x")); !st.Held || w.kind.Has&Counts != 0 && st.Count != 2 &&
				w.kind.Servers <= 1 {
				t.Errorf("with a nested hold: %+v", st)
			}
			testlock.Unlock(t, nested)
			time.Sleep(settled) // a RedLock may still be releasing parts that it did not need
			if st := inspect(t, w.rival("x")); !st.Held || w.kind.Has&Counts != 0 && st.Count != 1 &&
				w.kind.Servers <= 1 {
				t.Errorf("after a nested hold: %+v", st)
			}
		}
		if err := hold.Extend(bg, time.Minute); err != nil {
			t.Errorf("Extend: %v", err)
		}
		_, _, err = w.rival("x").TryLock(bg)
		testlock.WantError(t, "another one", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		return nil
	},
	"one that is waited for": func(t *testing.T, w *world, p *process, ctx context.Context) error {
		_, first := testlock.TryLock(t, w.rival("x"), bg)
		got := testlock.Go(ctx, p.lock("x"))
		time.Sleep(settled)
		testlock.Unlock(t, first)
		g := <-got
		if g.Err != nil {
			return g.Err
		}
		if g.Hold.Token() <= first.Token() && first.Token() != 0 {
			t.Errorf("token %d after %d", g.Hold.Token(), first.Token())
		}
		testlock.Unlock(t, g.Hold)
		return nil
	},
	"one that is not free": func(t *testing.T, w *world, p *process, ctx context.Context) error {
		free := w.occupy(t, "x")
		defer free()
		_, _, err := p.lock("x").TryLock(ctx)
		if !errors.Is(err, rlock.ErrLocked) {
			return fmt.Errorf("TryLock: %w", err)
		}
		_, _, err = p.lock("x").Lock(ctx, rlock.WaitAtMost(4*time.Second))
		if !errors.Is(err, rlock.ErrLocked) {
			return fmt.Errorf("Lock: %w", err)
		}
		return nil
	},
}

// disturb calls run many times for each cycle and each action, with a new process each time. The action
// disturbs the first request in the first run, the second request in the second run, and so on. Requests to
// all servers count. In the last run, there is no such request any more. run may pass a function to its last
// parameter. disturb then calls this function just before the request is disturbed.
func disturb(
	t *testing.T, w *world, actions map[string]faultproxy.Action,
	run func(t *testing.T, p *process, cycle cycle, disturbed func(f func())),
) {
	for what, cycle := range cycles {
		for how, action := range actions {
			for number := int64(1); ; number++ {
				p := w.process(t)
				var n atomic.Int64 // number of requests to all servers
				did := func() {}
				for i, net := range p.nets {
					if i > 0 && w.kind.Has&Alike != 0 {
						break
					}
					net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
						if r.Is("HELLO", "CLIENT") { // go-redis itself sends these commands
							return faultproxy.Pass
						}
						if n.Add(1) != number {
							return faultproxy.Pass
						}
						what := fmt.Sprintf("%s: request %d %s: %.60q", what, number, how, r.Args)
						t.Cleanup(func() {
							if t.Failed() {
								t.Log(what)
							}
						})
						did()
						return action
					})
				}
				failed := t.Failed()
				run(t, p, cycle, func(f func()) { did = f })
				p.end(t)
				w.clean(t, "x")
				if t.Failed() && !failed {
					t.Fatalf("%s: request %d %s", what, number, how)
				}
				if n.Load() < number {
					break
				}
			}
		}
	}
}

// release delivers the requests of p that were disturbed by faultproxy.Hold.
func (p *process) release(t *testing.T) {
	t.Helper()
	for _, net := range p.nets {
		for _, r := range net.Held() {
			testlock.Must(t, net.Release(r))
		}
	}
}

// traffic has tests of requests that are lost, late or repeated.
var traffic = map[string]test{
	// Proves: repeats
	"ALostRequestOrReplyChangesNothing": {0, func(t *testing.T, w *world) {
		disturb(t, w, map[string]faultproxy.Action{
			"is lost": faultproxy.DropAndCut, "loses its reply": faultproxy.CutReply,
			"has its reply swallowed": faultproxy.SwallowReply,
		}, func(t *testing.T, p *process, cycle cycle, _ func(func())) {
			if err := cycle(t, w, p, bg); err != nil {
				t.Error(err)
			}
		})
	}},
	// Proves: repeats
	"ARequestThatArrivesLateLeavesNothing": {0, func(t *testing.T, w *world) {
		disturb(t, w, map[string]faultproxy.Action{"is late": faultproxy.Hold}, func(
			t *testing.T, p *process, cycle cycle, _ func(func()),
		) {
			if err := cycle(t, w, p, bg); err != nil {
				t.Error(err)
			}
			_, theirs := testlock.Lock(t, w.rival("x"), bg) // the late request arrives during this hold
			p.release(t)
			time.Sleep(settled)
			_, _, err := w.new("x").TryLock(bg)
			testlock.WantError(t, "beside another", err, rlock.ErrLocked)
			testlock.Unlock(t, theirs)
		})
	}},
	"CopiesOfRequestsThatComeAfterwardsChangeNothing": {Mutexes, func(t *testing.T, w *world) {
		for _, held := range []bool{false, true} {
			p := w.process(t)
			testlock.Must(t, cycles["a free lock"](t, w, p, bg))
			var theirs *rlock.Hold
			if held {
				_, theirs = testlock.Lock(t, w.rival("x"), bg)
			}
			for i, net := range p.nets {
				for _, r := range net.Requests() {
					if _, err := net.Replay(r); err != nil && !errors.As(err, new(faultproxy.ReplyError)) {
						t.Fatal(err)
					}
					if st := inspect(t, w.rival("x")); st.Held != held ||
						held && theirs.Token() != 0 && st.Token != theirs.Token() {
						t.Fatalf("server %d, after a copy of %.60q: %+v", i, r.Args, st)
					}
				}
			}
			if held {
				testlock.Unlock(t, theirs)
			}
			p.end(t)
			w.clean(t, "x")
		}
	}},
	// Proves: no trace, repeats
	"ACancelAtAnyStepLeavesNothing": {0, func(t *testing.T, w *world) {
		disturb(t, w, map[string]faultproxy.Action{
			"arrives": faultproxy.Pass, "loses its reply": faultproxy.CutReply, "is late": faultproxy.Hold,
		}, func(t *testing.T, p *process, cycle cycle, disturbed func(func())) {
			ctx, cancel := context.WithCancel(bg)
			disturbed(cancel)
			start := time.Now()
			if err := cycle(t, w, p, ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			cancel()
			time.Sleep(10 * time.Second) // meanwhile, the process releases a grant that it may have
			testlock.Works(t, w.rival("x"))
			p.release(t)
		})
	}},
}

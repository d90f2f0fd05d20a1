package multilock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Package rlock has a test of the same name for locks on one server.
func TestCallsKeepTheirBoundInOutages(t *testing.T) {
	timeouts := func(o *redis.Options) {
		o.ReadTimeout, o.ContextTimeoutEnabled = 500*time.Millisecond, true
	}
	outages := map[string]struct{ begin, end func(w *testlock.Wire) }{
		"frozen": {func(w *testlock.Wire) { w.Net.Freeze() }, func(w *testlock.Wire) { w.Net.Thaw() }},
		"dead":   {func(w *testlock.Wire) { w.Down(true) }, func(w *testlock.Wire) { w.Down(false) }},
		"refused": {
			func(w *testlock.Wire) { w.Net.Refuse(true) }, func(w *testlock.Wire) { w.Net.Refuse(false) },
		},
	}
	takes := func(
		lock func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error),
	) func(context.Context, context.Context) error {
		return func(ctx, _ context.Context) error {
			_, hold, err := lock(ctx)
			if err == nil {
				testlock.Unlock(t, hold)
			}
			return err
		}
	}
	type call = func(ctx, held context.Context) error
	calls := map[string]func(l rlock.Locker, hold *rlock.Hold) call{
		"Lock":    func(l rlock.Locker, _ *rlock.Hold) call { return takes(l.Lock) },
		"TryLock": func(l rlock.Locker, _ *rlock.Hold) call { return takes(l.TryLock) },
		"Unlock": func(_ rlock.Locker, hold *rlock.Hold) call {
			return func(ctx, _ context.Context) error { return hold.Unlock(ctx) }
		},
		"nested": func(l rlock.Locker, _ *rlock.Hold) call {
			return func(ctx, held context.Context) error {
				until, _ := ctx.Deadline()
				ctx, cancel := context.WithDeadline(held, until)
				defer cancel()
				return takes(l.Lock)(ctx, held)
			}
		},
	}
	for what, outage := range outages {
		for name, callOf := range calls {
			for _, kind := range []string{"redlock", "multilock"} {
				for _, bound := range []time.Duration{200 * time.Millisecond, 4 * time.Second} {
					t.Run(fmt.Sprint(what, "/", name, "/", kind, "/", bound), func(t *testing.T) {
						withServers(t, 3, func(t *testing.T, r servers) {
							var all []*rlock.Session
							for _, w := range r {
								all = append(all, testlock.NewSession(t, w.Net.Client(t, timeouts)))
							}
							of := func(name string) rlock.Locker {
								if kind == "redlock" {
									return testlock.RedLock(name, all...)
								}
								return multilock.New(rlock.New(all[0], name), rlock.New(all[1], name))
							}
							held, hold := testlock.Lock(t, of("x"), bg)
							testlock.Works(t, of("warm"))
							l := of("x")
							if name == "Lock" || name == "TryLock" {
								l = of("y")
							}
							made := callOf(l, hold)
							for _, w := range r[:2] {
								outage.begin(w)
							}
							ctx, cancel := context.WithTimeout(bg, bound)
							defer cancel()
							start := time.Now()
							err := made(ctx, held)
							if took := time.Since(start); took > bound+100*time.Millisecond {
								t.Errorf("it took %v, of %v: %v", took, bound, err)
							}
							for _, w := range r[:2] {
								outage.end(w)
							}
							_ = hold.Unlock(bg)
							time.Sleep(time.Minute)
							for _, w := range r {
								testlock.OnlyTokens(t, w.Client)
							}
						})
					})
				}
			}
		}
	}
}

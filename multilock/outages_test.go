package multilock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
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

// lease is the lease of a hold in these tests.
const lease = protocol.DefaultLease

// failures starts n calls of Lock without a bound, and returns the errors with which they end. It fails the
// test if a call does not end about one lease after its beginning. The call with the turn may end up to 5 s
// later, because it pauses between two rounds.
func failures(t *testing.T, n int, l rlock.Locker) (errs []error) {
	t.Helper()
	ended := make(chan error, n)
	ctx, cancel := context.WithCancel(bg) // has no deadline
	defer cancel()
	time.AfterFunc(2*lease, cancel)
	for range n {
		go func() {
			begun := time.Now()
			_, hold, err := l.Lock(ctx)
			if took := time.Since(begun); err == nil {
				t.Error("it has the lock")
				_ = hold.Unlock(bg)
			} else if took < lease || took > lease+6*time.Second {
				t.Errorf("it ended after %v: %v", took, err)
			}
			ended <- err
		}()
		time.Sleep(300 * time.Millisecond)
	}
	for range n {
		errs = append(errs, <-ended)
	}
	return errs
}

// Each goroutine of a process waits for one lease, counted from the beginning of its own call or of the
// outage. When one goroutine has given up, the next goroutine does not begin a new wait of one lease.
func TestGoroutinesOfAProcessGiveUpOneLeaseAfterTheirServersFailed(t *testing.T) {
	outages := map[string]struct{ begin, end func(w *testlock.Wire) }{
		"frozen": {func(w *testlock.Wire) { w.Net.Freeze() }, func(w *testlock.Wire) { w.Net.Thaw() }},
		"refused": {
			func(w *testlock.Wire) { w.Net.Refuse(true) }, func(w *testlock.Wire) { w.Net.Refuse(false) },
		},
		"full disk": {func(w *testlock.Wire) { w.SetError("MISCONF errors writing to the AOF file") },
			func(w *testlock.Wire) { w.SetError("") }},
	}
	for what, outage := range outages {
		for _, numFailing := range []int{2, 3} {
			// before runs before the calls without a bound begin.
			for name, before := range map[string]func(m *multilock.RedLock){
				"free": func(*multilock.RedLock) {},
				"behind a call with a deadline": func(m *multilock.RedLock) {
					go func() { _ = testlock.Cycle(bg, m, rlock.WaitAtMost(10*time.Second)) }()
				},
				"behind a call with a late deadline": func(m *multilock.RedLock) {
					go func() { _ = testlock.Cycle(bg, m, rlock.WaitAtMost(2*time.Minute)) }()
				},
			} {
				t.Run(fmt.Sprint(what, "/", numFailing, "/", name), func(t *testing.T) {
					withServers(t, 3, func(t *testing.T, r servers) {
						m := r.warm(t)
						for _, w := range r[:numFailing] {
							outage.begin(w)
						}
						before(m)
						synctest.Wait()
						for _, err := range failures(t, 4, m) {
							text := fmt.Sprintf("s: %d of 3 servers answered, 2 are needed: server %s: ",
								3-numFailing, r[0].Net.Addr())
							if !strings.Contains(err.Error(), "gave up after 1") ||
								!strings.Contains(err.Error(), text) {
								t.Error(err)
							}
						}
						for _, w := range r[:numFailing] {
							outage.end(w)
						}
						time.Sleep(5 * time.Minute)
						testlock.Works(t, m)
					})
				})
			}
		}
	}
}

// One member is on a server that answers nothing. The TryLock of this member waits for one lease.
func TestALockOfAMultiLockGivesUpOneLeaseAfterItsServerFellSilent(t *testing.T) {
	members := map[string]func(s *rlock.Session) rlock.Locker{
		"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 1).Locker(1) },
		"redisson":  func(s *rlock.Session) rlock.Locker { return redisson.New(s, "x") },
	}
	for kind, member := range members {
		// A session that knows no clock first sends a request for it. This request waits for one lease, too.
		for _, knowsClock := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, " ", knowsClock), func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					other := testlock.NewWire(t)
					slow := func(o *redis.Options) { o.ReadTimeout = 5 * time.Second } // the default
					x := member(testlock.NewSession(t, w.Net.Client(t, slow)))
					a := rlock.New(testlock.NewSession(t, other.Client), "a")
					l := multilock.New(a, x)
					if knowsClock {
						testlock.Works(t, l)
					}
					w.Net.Freeze()
					start := time.Now()
					_, _, err := l.Lock(bg)
					if took := time.Since(start); err == nil || took > lease+time.Second ||
						!strings.Contains(err.Error(), "15s") {
						t.Errorf("%v after %v", err, took)
					}
					w.Net.Thaw()
					time.Sleep(time.Minute)
					testlock.Works(t, l)
				})
			})
		}
	}
}

// cutOff returns the RedLock "x" of a new process with its own network. cut(true) disconnects the process
// from all servers except the server of the line. cut(false) connects it again.
func (r servers) cutOff(t *testing.T) (m *multilock.RedLock, cut func(bool)) {
	all, own := r.apart(t)
	at := r.lineAt()
	return testlock.RedLock("x", all...), func(refuse bool) {
		for i, p := range own {
			if i != at {
				p.Refuse(refuse)
			}
		}
	}
}

// A process reaches the server of the line, where others wait, but no majority. Its calls give up, too.
func TestACallThatWaitsInTheLineGivesUpOneLeaseAfterAMajorityFailed(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hold, waiting, _ := r.queue(t, 2)
		m, cut := r.cutOff(t)
		cut(true)
		failures(t, 4, m)
		cut(false)
		testlock.Unlock(t, hold)
		served(t, waiting...)
	})
}

// The call in the line has a deadline, so it does not give up. But the calls behind it have no deadline.
func TestCallsBehindACallInTheLineGiveUpOneLeaseAfterAMajorityFailed(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hold, waiting, _ := r.queue(t, 2)
		m, cut := r.cutOff(t)
		cut(true)
		waiting = append(waiting, testlock.Go(bg, m, rlock.WaitAtMost(10*time.Minute)))
		synctest.Wait()
		failures(t, 4, m)
		cut(false)
		testlock.Unlock(t, hold)
		served(t, waiting...)
	})
}

// A majority of the servers fails for 5 s. One goroutine has the turn, and the others wait behind it for more
// than one lease. Each of them gets the lock in the end.
func TestAnOutageThatHasEndedEndsNoWait(t *testing.T) {
	t.Run("in line", func(t *testing.T) {
		withServers(t, 3, func(t *testing.T, r servers) {
			hold, waiting, _ := r.queue(t, 2)
			m, cut := r.cutOff(t)
			cut(true)
			_ = testlock.Cycle(bg, m, rlock.WaitAtMost(time.Second)) // now the outage is known
			for range 3 {
				waiting = append(waiting, testlock.Go(bg, m))
			}
			time.Sleep(5 * time.Second)
			cut(false)
			time.Sleep(5 * time.Minute)
			testlock.Unlock(t, hold)
			served(t, waiting...)
		})
	})
	t.Run("held", func(t *testing.T) {
		withServers(t, 3, func(t *testing.T, r servers) {
			m := r.warm(t)
			r.refuse(true)
			first := testlock.Go(bg, m, rlock.WithLease(time.Hour))
			synctest.Wait()
			waiting := []<-chan testlock.Grant{testlock.Go(bg, m), testlock.Go(bg, m)}
			time.Sleep(5 * time.Second)
			r.refuse(false)
			hold := testlock.Granted(t, first)
			time.Sleep(5 * time.Minute)
			testlock.Unlock(t, hold)
			served(t, waiting...)
		})
	})
}

// refuse makes all servers refuse connections, or accept them again.
func (r servers) refuse(refuse bool) {
	for _, w := range r {
		w.Net.Refuse(refuse)
	}
}

// The call with the turn waits in the line, so its process sends no requests to the two other servers. After
// an outage of more than one lease, the process does not notice that these servers work again.
func TestAnOutageThatEndedUnnoticedEndsNoWait(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hold, waiting, _ := r.queue(t, 2)
		m, cut := r.cutOff(t)
		cut(true)
		_ = testlock.Cycle(bg, m, rlock.WaitAtMost(time.Second)) // now the outage is known
		waiting = append(waiting, testlock.Go(bg, m, rlock.WaitAtMost(time.Hour)))
		time.Sleep(2 * lease)
		cut(false)
		waiting = append(waiting, testlock.Go(bg, m))
		time.Sleep(5 * time.Minute)
		testlock.Unlock(t, hold)
		served(t, waiting...)
	})
}

package rlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// outages are faults of the server, or of the network, that begin when a call is made. A test of exhausted
// pools is in pool_real_test.go, because the pools of go-redis share timers, and cannot wait in fake time.
var outages = map[string]struct {
	lasts time.Duration // how long it takes until calls succeed; 0: until end is called
	begin func(w *testlock.Wire)
	end   func(w *testlock.Wire)
}{
	"a frozen server": {
		0, func(w *testlock.Wire) { w.Net.Freeze() }, func(w *testlock.Wire) { w.Net.Thaw() },
	},
	"a server that accepts and is silent": {0, func(w *testlock.Wire) {
		w.Net.CutAll()
		w.Net.Freeze()
	}, func(w *testlock.Wire) { w.Net.Thaw() }},
	"a dead host": {0, func(w *testlock.Wire) { w.Down(true) }, func(w *testlock.Wire) { w.Down(false) }},
	"a slow server": {
		2 * time.Second, // the time that all requests of a call need
		func(w *testlock.Wire) { w.Net.SetDelay(100 * time.Millisecond) },
		func(w *testlock.Wire) { w.Net.SetDelay(0) },
	},
	"a restart of 2 s": {3 * time.Second, func(w *testlock.Wire) {
		w.Net.Refuse(true)
		time.AfterFunc(2*time.Second, func() { w.Net.Refuse(false) })
	}, func(*testlock.Wire) {}},
	"a failover of 10 s": {0, func(w *testlock.Wire) {
		w.Net.Refuse(true)
		time.AfterFunc(10*time.Second, func() { w.Net.Refuse(false) })
	}, func(*testlock.Wire) {}},
}

type boundedCall = func(context.Context) error

// locks returns a call that locks and unlocks.
func locks(
	t *testing.T, lock func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error),
) boundedCall {
	return func(ctx context.Context) error {
		_, hold, err := lock(ctx)
		if err == nil {
			testlock.Unlock(t, hold)
		}
		return err
	}
}

// bounded has calls that must return at their deadlines. If waits is true, the call waits through an outage.
var bounded = map[string]struct {
	waits bool
	of    func(t *testing.T, s *rlock.Session) boundedCall
}{
	"Lock": {true, func(t *testing.T, s *rlock.Session) boundedCall {
		return locks(t, rlock.New(s, "x").Lock)
	}},
	"TryLock": {false, func(t *testing.T, s *rlock.Session) boundedCall {
		return locks(t, rlock.New(s, "x").TryLock)
	}},
	"Unlock": {false, func(t *testing.T, s *rlock.Session) boundedCall {
		return testlock.Take(t, rlock.New(s, "x")).Unlock
	}},
	"Lock, nested": {false, func(t *testing.T, s *rlock.Session) boundedCall {
		m := rlock.New(s, "x")
		held, hold := testlock.Lock(t, m, bg)
		return func(ctx context.Context) error {
			until, _ := ctx.Deadline()
			ctx, cancel := context.WithDeadline(held, until)
			defer cancel()
			defer func() { go hold.Unlock(bg) }()
			return locks(t, m.Lock)(ctx)
		}
	}},
	"Acquire": {true, func(t *testing.T, s *rlock.Session) boundedCall {
		return locks(t, semaphore.New(s, "x", 3).Locker(2).Lock)
	}},
	"RLock": {true, func(t *testing.T, s *rlock.Session) boundedCall {
		return locks(t, rwlock.New(s, "x").RLock)
	}},
	"Wait": {true, func(_ *testing.T, s *rlock.Session) boundedCall {
		return latch.New(s, "x").Wait
	}},
	"Campaign": {true, func(t *testing.T, s *rlock.Session) boundedCall {
		return func(ctx context.Context) error {
			_, leadership, err := election.New(s, "x").Campaign(ctx, "me")
			if err == nil {
				testlock.Must(t, leadership.Resign(bg))
			}
			return err
		}
	}},
}

// clients are settings of go-redis that decide how long a request can block.
var clients = map[string]func(o *redis.Options){
	"deadlines count": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	"deadlines count, no timeout": func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.ReadTimeout = true, -1
	},
	"deadlines do not count":       func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond },
	"deadlines do not count, 20 s": func(o *redis.Options) { o.ReadTimeout = 20 * time.Second },
	"no timeout":                   func(o *redis.Options) { o.ReadTimeout = -1 },
	"neither timeouts nor deadlines": func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.ReadTimeout = true, -2
	},
}

// A call ends at most 100 ms after its deadline. (A waiter needs this time to leave the queue.) This holds
// for every client, although the call has sent a request before it could know of the outage.
func TestCallsKeepTheirBoundInOutages(t *testing.T) {
	for what, outage := range outages {
		for name, call := range bounded {
			for options, client := range clients {
				for _, bound := range []time.Duration{200 * time.Millisecond, 4 * time.Second} {
					t.Run(fmt.Sprint(what, "/", name, "/", options, "/", bound), func(t *testing.T) {
						testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
							s := testlock.NewSession(t, w.Net.Client(t, client))
							made := call.of(t, s)
							testlock.Warm(t, rlock.New(s, "warm"))
							outage.begin(w)
							ctx, cancel := context.WithTimeout(bg, bound)
							defer cancel()
							start := time.Now()
							err := made(ctx)
							if took := time.Since(start); err != nil && took > bound+100*time.Millisecond {
								t.Errorf("it took %v, of %v: %v", took, bound, err)
							}
							if call.waits && outage.lasts > 0 && outage.lasts < bound && err != nil {
								t.Errorf("it did not ride the outage out: %v", err)
							}
							outage.end(w)
							time.Sleep(time.Minute)
							testlock.OnlyTokens(t, w.Client)
						})
					})
				}
			}
		}
	}
}

// If a call has no deadline, the library bounds it: an Unlock by 5 s, a Lock by the lease.
func TestCallsWithoutADeadlineKeepTheirBoundInOutages(t *testing.T) {
	const lease = 6 * time.Second
	cycle := func(m *rlock.Mutex, _ *rlock.Hold) error { return testlock.Cycle(bg, m) }
	for options, client := range clients {
		for name, call := range map[string]struct {
			of    func(m *rlock.Mutex, hold *rlock.Hold) error
			known bool // the call waits before the outage begins
			most  time.Duration
		}{
			"Lock":            {of: cycle, most: lease},
			"Lock that waits": {of: cycle, known: true, most: 2 * lease},
			"TryLock": {of: func(m *rlock.Mutex, _ *rlock.Hold) error {
				_, _, err := m.TryLock(bg)
				return err
			}, most: lease},
			"Inspect": {of: func(m *rlock.Mutex, _ *rlock.Hold) error {
				_, err := m.Inspect(bg)
				return err
			}, most: lease},
			"Unlock": {of: func(_ *rlock.Mutex, hold *rlock.Hold) error {
				return hold.Unlock(bg)
			}, most: 5 * time.Second},
			"Unlock below a hold": {of: func(_ *rlock.Mutex, hold *rlock.Hold) error {
				ended, cancel := context.WithCancel(bg)
				cancel()
				return hold.Unlock(ended)
			}, most: 5 * time.Second},
		} {
			t.Run(name+"/"+options, func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					other := testlock.NewSession(t, w.Net.Client(t))
					taken := testlock.Take(t, rlock.New(other, "taken"))
					s := testlock.NewSession(t, w.Net.Client(t, client), rlock.WithWatchdogTimeout(lease))
					hold := testlock.Take(t, testlock.Warm(t, rlock.New(s, "mine")))
					if !call.known {
						w.Net.Freeze()
					}
					ended := make(chan error, 1)
					start := time.Now()
					go func() { ended <- call.of(rlock.New(s, "taken"), hold) }()
					if call.known {
						time.Sleep(time.Second)
						w.Net.Freeze()
						start = time.Now()
					}
					if err := testlock.Receive(t, "the end of the call", ended); err == nil {
						t.Error("it worked")
					} else if took := time.Since(start); took > call.most+100*time.Millisecond {
						t.Errorf("it took %v, of %v: %v", took, call.most, err)
					}
					w.Net.Thaw()
					time.Sleep(time.Minute)
					testlock.Unlock(t, taken)
				})
			})
		}
	}
}

// The error of such a wait must look neither like contention nor like a broken network.
func TestAWaitInWhichRedisAnsweredNothingSaysSo(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		time.Sleep(time.Minute)
		w.Net.Freeze()
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		_, _, err := m.Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), `context deadline exceeded; no answer from Redis within `) {
			t.Errorf("a silent Redis: %v", err)
		}
	})
}

func TestACallWithoutADeadlineNamesTheServerThatDoesNotAnswer(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		w.Net.Freeze()
		_, _, err := m.TryLock(bg)
		want := `lock "x": no answer from Redis at ` + w.Net.Addr() + " within "
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	})
}

// A client with a TLSConfig waits for a reply to its handshake. Redis without TLS never sends this reply.
func TestAWaitForAFirstAnswerThatDoesNotComeAsksForTLS(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		c := w.Net.Client(t, func(o *redis.Options) { o.TLSConfig = &tls.Config{} })
		session := testlock.NewSession(t, c)
		l := latch.New(session, "x")
		const hint = "(the client has a TLSConfig: does the server speak TLS?)"
		for _, answered := range []bool{false, true} {
			if answered {
				w.Net.Thaw()
				testlock.Must(t, l.Wait(bg))
			}
			w.Net.Freeze()
			for name, wait := range map[string]func(context.Context) error{
				"Lock": func(ctx context.Context) error {
					_, _, err := rlock.New(session, "x").Lock(ctx)
					return err
				},
				"Wait": l.Wait,
			} {
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				err := wait(ctx)
				cancel()
				if !strings.Contains(err.Error(), "; no answer from Redis within 3") ||
					strings.HasSuffix(err.Error(), hint) == answered {
					t.Errorf("%s, answered %v: %v", name, answered, err)
				}
			}
		}
	})
}

// The grant arrives after the wait has ended. The call releases this grant, and must not name it as the
// holder.
func TestAWaitThatIsShorterThanARoundTripNamesNoHolder(t *testing.T) {
	kinds := map[string]func(*rlock.Session) rlock.Locker{
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 2).Locker(1) },
		"writer":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
		"reader":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() },
		"Redisson":  func(s *rlock.Session) rlock.Locker { return redisson.New(s, "x") },
	}
	for name, newMutex := range testlock.Kinds {
		kinds[name] = func(s *rlock.Session) rlock.Locker { return newMutex(s, "x") }
	}
	const short = 2 * time.Millisecond
	check := func(t *testing.T, what string, l rlock.Locker, ctx context.Context) {
		t.Helper()
		_, _, err := l.Lock(ctx, rlock.WaitAtMost(short))
		const text = `"x": no answer from Redis within 2ms, the wait that WaitAtMost allows`
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasSuffix(err.Error(), text) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(time.Second) // until the grant is released
		ctx, cancel := context.WithTimeout(ctx, short)
		defer cancel()
		_, _, err = l.Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*rlock.LockedError)) ||
			!strings.Contains(err.Error(), "; no answer from Redis within ") {
			t.Fatalf("%s, by its context: %v", what, err)
		}
	}
	for name, of := range kinds {
		// A request with a short timeout is sent by the caller's goroutine, and others by a goroutine of
		// their own.
		for _, timeout := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
			t.Run(fmt.Sprint(name, timeout), func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					client := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = timeout })
					l := testlock.Warm(t, of(testlock.NewSession(t, client)))
					held, hold := testlock.Lock(t, l, bg)
					w.Net.SetDelay(5 * time.Millisecond)
					if name == "reentrant" || name == "fair" || name == "Redisson" { // others send none
						check(t, "nested", l, held)
					}
					testlock.Unlock(t, hold)
					for range 3 {
						time.Sleep(time.Second)
						check(t, "free", l, bg)
					}
					w.Net.SetDelay(0)
				})
			})
		}
	}
}

// The error names the holder even if its hold ended at the same time as the wait, or shortly before.
func TestAWaitThatEndsAsTheLockIsPassedOnNamesTheHolderBefore(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		after := func(d time.Duration, hold *rlock.Hold) {
			go func() { time.Sleep(d); testlock.Unlock(t, hold) }()
		}
		for range 100 {
			_, hold := testlock.Lock(t, m, bg)
			ctx, cancel := context.WithCancel(bg)
			ended := make(chan error, 1)
			go func() {
				_, got, err := m.Lock(ctx)
				if err == nil {
					testlock.Unlock(t, got)
				}
				ended <- err
			}()
			synctest.Wait()
			cancel()
			testlock.Unlock(t, hold) // mostly before the waiter has left
			if err := <-ended; err != nil && !errors.As(err, new(*rlock.LockedError)) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		held, outer := testlock.Lock(t, m, bg)
		_, beside := testlock.Lock(t, m, held)
		w.Net.SetDelay(5 * time.Millisecond)
		after(time.Second, beside)
		_, _, err := m.Lock(held, rlock.WaitAtMost(time.Second+2*time.Millisecond))
		testlock.WantError(t, "a wait for a hold beside it", err, rlock.ErrLocked)
		time.Sleep(time.Second)
		w.Net.SetDelay(0)
		testlock.Unlock(t, outer)
	})
}

package multilock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// isLock and isRelease tell what requests of reentrant locks are, of one or of several.
func isLock(r *faultproxy.Request) bool    { return strings.HasPrefix(scriptOf(r), "lock") }
func isRelease(r *faultproxy.Request) bool { return strings.HasPrefix(scriptOf(r), "release") }

var reentrant = testlock.Scripts(rlock.New(nil, "x"))

func scriptOf(r *faultproxy.Request) string { return reentrant[r.Script()] }

func TestMembersOnOneServerAreTakenByOneRequest(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		for _, n := range []int{1, 2, 7, 100} {
			_, members := namesOf(testlock.NewSession(t, w.Client), n)
			l := testlock.Warm(t, multilock.New(members...))
			w.Net.Reset()
			hold := testlock.Take(t, l)
			if w.Net.Count() != 1 {
				t.Errorf("%d members: %d requests to lock", n, w.Net.Count())
			}
			testlock.Unlock(t, hold)
			if w.Net.Count() != 2 {
				t.Errorf("%d members: %d requests to lock and unlock", n, w.Net.Count())
			}
		}
	})
}

func TestOneThatIsTakenCostsOneRequestAndTakesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := namesOf(testlock.NewSession(t, w.Client), 5)
		theirs, _ := namesOf(testlock.NewSession(t, w.Client), 5)
		l := testlock.Warm(t, multilock.New(members...))
		for i := range ms {
			hold := testlock.Take(t, theirs[i])
			w.Net.Reset()
			_, _, err := l.TryLock(bg)
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != i || !errors.Is(err, rlock.ErrLocked) || w.Net.Count() != 1 {
				t.Errorf("%d requests: %v", w.Net.Count(), err)
			}
			var locked *rlock.LockedError
			if errors.As(err, &locked) && (locked.Holder == "" || locked.Remaining <= 0 || !strings.Contains(locked.About, "@")) {
				t.Errorf("%+v", locked)
			}
			testlock.Unlock(t, hold)
			if !free(t, ms...) {
				t.Errorf("m%d was taken, and something is left", i)
			}
		}
	})
}

// Keys of one slot only may be named by one request on a Cluster. The server says that it is one, and has all slots.
func TestOnAClusterOnlyKeysOfOneSlotShareARequest(t *testing.T) {
	for prefix, want := range map[string]int{"lockline": 12, "{app}": 1} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{PoolSize: 10_000, PipelinePoolSize: 10_000, Addrs: []string{w.Net.Addr()}, Dialer: w.Net.Dial})
			t.Cleanup(func() { _ = rdb.Close() })
			ms, members := namesOf(testlock.NewSession(t, rdb, rlock.WithPrefix(prefix)), 12)
			l := testlock.Warm(t, multilock.New(members...))
			w.Net.Reset()
			hold := testlock.Take(t, l)
			if n := w.Net.Count("EVALSHA"); n != want {
				t.Errorf("%s: locked by %d requests, want %d", prefix, n, want)
			}
			testlock.Unlock(t, hold)
			if n := w.Net.Count("EVALSHA"); n != 2*want {
				t.Errorf("%s: locked and unlocked by %d requests, want %d", prefix, n, 2*want)
			}
			if !free(t, ms...) {
				t.Errorf("%s: something is left", prefix)
			}
		})
	}
}

func TestRepliesThatAreLostLeaveEveryMemberExact(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		proxy := faultproxy.InMemory(t, w.Dial)
		_, members := namesOf(testlock.NewSession(t, proxy.Client(t)), 3)
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 3)
		l := testlock.Warm(t, multilock.New(members...))
		lost := testlock.Lossy(proxy, rand.New(rand.NewPCG(5, 6)), func(r *faultproxy.Request) string {
			if scriptOf(r) == "" {
				return ""
			}
			return scriptOf(r) + strings.Join(r.Args[2:5], " ")
		})
		last := make([]int64, len(ms))
		for range 100 {
			_, hold := testlock.Lock(t, l, bg)
			for i, m := range ms {
				st := testlock.Inspect(t, m)
				if token := hold.Parts()[i].Token(); st.Count != 1 || st.Token != token || token <= last[i] {
					t.Fatalf("%+v; token %d after %d", st, token, last[i])
				}
				last[i] = st.Token
			}
			testlock.Unlock(t, hold)
			if !free(t, ms...) {
				t.Fatal("something is left")
			}
		}
		if n := lost(); n < 100 {
			t.Errorf("only %d replies were lost", n)
		}
	})
}

func TestALateCopyOfARequestForSeveralTakesNone(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			proxy := faultproxy.InMemory(t, w.Dial)
			_, members := namesOf(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), 3)
			ms, _ := namesOf(testlock.NewSession(t, w.Client), 3)
			l := testlock.Warm(t, multilock.New(members...))
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			var n, released atomic.Int32
			proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if isLock(r) && n.Add(1) == 1 {
					if canceled {
						cancel()
					}
					return faultproxy.Hold
				}
				return faultproxy.Pass
			})
			proxy.OnReply(func(r faultproxy.Request) {
				if isRelease(&r) {
					released.Add(1)
				}
			})
			if canceled {
				_, _, err := l.Lock(ctx)
				testlock.WantError(t, "Lock", err, context.Canceled)
			} else { // granted to the second copy
				testlock.Works(t, l)
			}
			// The undoing tells Redis of the copy, once the request's time is over.
			testlock.Eventually(t, "marked as over", func() bool { return released.Load() > 0 })
			testlock.Must(t, proxy.Release(proxy.Held()[0]))
			if !free(t, ms...) {
				t.Errorf("canceled %v: the late copy took something", canceled)
			}
		})
	}
}

func TestAGrantThatIsTooLateForSomeIsGivenBackAndAskedForAnew(t *testing.T) {
	const lease = 30 * time.Second
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		slow := 0
		// Whoever is told of the second member's first hold takes too long for the rest.
		watch := testlock.Observer(func(e rlock.Event) {
			if e.Kind == rlock.Acquired && e.Name == "m1" {
				if slow++; slow == 2 {
					time.Sleep(lease)
				}
			}
		})
		ms, members := namesOf(testlock.NewSession(t, w.Client, rlock.WithObserver(watch), rlock.WithWatchdogTimeout(lease)), 4)
		l := multilock.New(members...)
		_, hold := testlock.Lock(t, l, bg)
		tokens := hold.Parts()
		testlock.Unlock(t, hold)
		_, hold = testlock.Lock(t, l, bg)
		for i, p := range hold.Parts() {
			if p.Err() != nil || p.Token() <= tokens[i].Token() {
				t.Errorf("%s: %v", p.Name(), p.Err())
			}
		}
		if slow != 3 {
			t.Errorf("m1 was held %d times", slow)
		}
		testlock.Unlock(t, hold)
		if synctest.Wait(); !free(t, ms...) {
			t.Error("something is left")
		}
	})
}

// The wait is for all of them: what is granted after it is given back.
func TestAWaitThatIsOverBetweenTwoMembersTakesNone(t *testing.T) {
	for _, taken := range []bool{false, true} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			slow := rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
				if e.Kind == rlock.Acquired && e.Name == "a" {
					time.Sleep(2 * time.Second)
				}
			}))
			a := rlock.New(testlock.NewSession(t, w.Client, slow), "a")
			b := rlock.New(testlock.NewSession(t, testlock.NewWire(t).Client), "b")
			l := multilock.New(b, a)
			want := os.ErrDeadlineExceeded
			if taken { // a, until it is waited for
				theirs := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "a"))
				time.AfterFunc(time.Second/2, func() { _ = theirs.Unlock(bg) })
				want = rlock.ErrLocked
			} else {
				l = multilock.New(a, b)
			}
			_, _, err := l.Lock(bg, rlock.WaitAtMost(time.Second))
			testlock.WantError(t, "Lock", err, want)
			if synctest.Wait(); !free(t, a, b) {
				t.Error("something is left")
			}
		})
	}
}

func TestAServerThatDiesInBetweenIsNamedAndTheOthersAreGivenBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		dying := testlock.NewWire(t)
		ms, members := namesOf(testlock.NewSession(t, w.Client), 2)
		l := testlock.Warm(t, multilock.New(append(members, rlock.New(testlock.NewSession(t, dying.Client), "x"))...))
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isLock(r) {
				dying.Kill()
			}
			return faultproxy.Pass
		})
		ctx, hold, err := l.Lock(bg)
		var member *multilock.MemberError
		if !errors.As(err, &member) || member.Index != 2 || member.Name != "x" || errors.Is(err, rlock.ErrLocked) || errors.Is(err, rlock.ErrLost) {
			t.Errorf("%v", err)
		}
		if hold != nil || ctx != bg || !free(t, ms...) {
			t.Error("something is left")
		}
	})
}

func TestAFrozenServerBoundsNoWait(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		frozen := testlock.NewWire(t)
		ms, members := namesOf(testlock.NewSession(t, w.Client), 2)
		there := testlock.NewSession(t, frozen.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Second }))
		ms = append(ms, rlock.New(there, "x"), fairlock.New(there, "y"))
		for _, last := range ms[2:] {
			l := testlock.Warm(t, multilock.New(append(members, last)...))
			for name, take := range map[string]func(ctx context.Context) error{
				"deadline": func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, _, err := l.Lock(ctx)
					testlock.WantError(t, "a deadline", err, context.DeadlineExceeded)
					return err
				},
				"WaitAtMost": func(ctx context.Context) error {
					_, _, err := l.Lock(ctx, rlock.WaitAtMost(time.Second))
					return err
				},
				"TryLock": func(ctx context.Context) error {
					_, _, err := l.TryLock(ctx, rlock.WaitAtMost(time.Second))
					return err
				},
			} {
				frozen.Net.Freeze()
				start := time.Now()
				err := take(bg)
				var member *multilock.MemberError
				if !errors.As(err, &member) || member.Index != 2 || errors.Is(err, rlock.ErrLocked) {
					t.Errorf("%s: %v", name, err)
				}
				if name != "deadline" {
					testlock.WantError(t, name, err, os.ErrDeadlineExceeded)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("%s ended after %v", name, took)
				}
				frozen.Net.Thaw()
				testlock.Eventually(t, "all is free", func() bool { return free(t, ms...) })
			}
		}
	})
}

func TestCloseEndsTheWaitAndTheHold(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		closing := testlock.NewSession(t, w.Client)
		there := rlock.New(testlock.NewSession(t, testlock.NewWire(t).Client), "there")
		busy := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "here"))
		got := testlock.Go(bg, multilock.New(there, rlock.New(closing, "here")))
		synctest.Wait()
		testlock.Must(t, closing.Close())
		var member *multilock.MemberError
		if g := <-got; !errors.Is(g.Err, rlock.ErrClosed) || !errors.As(g.Err, &member) || member.Index != 1 {
			t.Errorf("%v", g.Err)
		}
		testlock.Unlock(t, busy)
		closing = testlock.NewSession(t, w.Client)
		ctx, hold := testlock.Lock(t, multilock.New(there, rlock.New(closing, "here")), bg)
		testlock.Must(t, closing.Close())
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(hold.Err(), rlock.ErrClosed) || free(t, there) {
			t.Errorf("%v, %v", context.Cause(ctx), hold.Err())
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrClosed) || !free(t, there) {
			t.Errorf("%v", err)
		}
	})
}

// leaver is a Locker that is always taken, and whose TryLock ends the caller's context.
type leaver struct{ leave context.CancelFunc }

func (leaver) Name() string { return "taken" }

func (l leaver) Lock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return ctx, nil, ctx.Err()
}

func (l leaver) TryLock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	l.leave()
	return ctx, nil, &rlock.LockedError{Name: "taken"}
}

// The members that were had must be given back, though the next round, which the end of the context ends,
// begins meanwhile.
func TestWhoeverLeavesWhileStartingOverKeepsNoMember(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var log bytes.Buffer
		s := testlock.NewSession(t, w.Client, rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		m := rlock.New(s, "a")
		ctx, cancel := context.WithCancel(bg)
		_, hold, err := multilock.New(m, leaver{cancel}).Lock(ctx)
		if hold != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("Lock: %v, %v", hold, err)
		}
		if synctest.Wait(); !free(t, m) {
			t.Error("something is left")
		}
		testlock.Must(t, s.Close())
		if log.Len() > 0 {
			t.Error(log.String())
		}
	})
}

// The first copy was granted both, and its reply lost; one of them was forced before the second copy.
func TestAStaleAnswerLeavesNothingOfTheOtherLocks(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		proxy := faultproxy.InMemory(t, w.Dial)
		direct, _ := namesOf(testlock.NewSession(t, w.Client), 2)
		_, members := namesOf(testlock.NewSession(t, proxy.Client(t)), 2)
		both := testlock.Warm(t, multilock.New(members...))
		n := 0
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if scriptOf(r) == "lock several" {
				switch n++; n {
				case 1:
					return faultproxy.CutReply
				case 2:
					testlock.ForceUnlock(t, direct[1])
				}
			}
			return faultproxy.Pass
		})
		testlock.Works(t, both)
		if n < 3 {
			t.Errorf("%d requests for both", n)
		}
		for _, m := range direct {
			testlock.Works(t, m)
		}
	})
}

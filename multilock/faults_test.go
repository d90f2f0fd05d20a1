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

// isLock and isRelease report whether a request acquires or releases a lock.
func isLock(r *faultproxy.Request) bool    { return scriptOf(r) == "acquire" }
func isRelease(r *faultproxy.Request) bool { return scriptOf(r) == "release" }

func scriptOf(r *faultproxy.Request) string { return testlock.Script(r.Script()) }

// pipelines is a hook that counts the pipelines of a client, and the commands in them.
type pipelines struct{ sent, commands atomic.Int32 }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.sent.Add(1)
		p.commands.Add(int32(len(cmds)))
		return next(ctx, cmds)
	}
}

// took returns the numbers of pipelines and commands since its last call.
func (p *pipelines) took() [2]int32 { return [2]int32{p.sent.Swap(0), p.commands.Swap(0)} }

func TestMembersOfAServerShareAPipeline(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var counted pipelines
		w.Client.AddHook(&counted)
		for _, n := range []int{2, 7, 100} {
			_, members := namesOf(testlock.NewSession(t, w.Client), n)
			l := testlock.Warm(t, multilock.New(members...))
			w.Net.Reset()
			counted.took()
			hold := testlock.Take(t, l)
			if got := counted.took(); got != [2]int32{1, int32(n)} || w.Net.Count() != n {
				t.Errorf("%d members: %d pipelines of %d requests, %d in all, to lock",
					n, got[0], got[1], w.Net.Count())
			}
			testlock.Unlock(t, hold)
			if got := counted.took(); got != [2]int32{1, int32(n)} || w.Net.Count() != 2*n {
				t.Errorf("%d members: %d pipelines of %d requests, %d in all, to unlock",
					n, got[0], got[1], w.Net.Count()-n)
			}
		}
	})
}

func TestOneThatIsTakenTakesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := namesOf(testlock.NewSession(t, w.Client), 5)
		theirs, _ := namesOf(testlock.NewSession(t, w.Client), 5)
		l := testlock.Warm(t, multilock.New(members...))
		for i := range ms {
			hold := testlock.Take(t, theirs[i])
			w.Net.Reset()
			_, _, err := l.TryLock(bg)
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != i || !errors.Is(err, rlock.ErrLocked) ||
				w.Net.Count() != 5+4 {
				t.Errorf("%d requests: %v", w.Net.Count(), err)
			}
			var locked *rlock.LockedError
			if errors.As(err, &locked) && (locked.Holder == "" || locked.Remaining <= 0 ||
				!strings.Contains(locked.About, "@")) {
				t.Errorf("%+v", locked)
			}
			testlock.Unlock(t, hold)
			if !free(t, ms...) {
				t.Errorf("m%d was taken, and something is left", i)
			}
		}
	})
}

// If the session itself holds a member, TryLock sends no request for the other members. Such a request would
// take them for a moment, and other sessions would be refused.
func TestOneThatTheSessionHasItselfCostsNoRequest(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var refused []string // names of the locks that TryLock did not get
		watch := rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventNotAcquired {
				refused = append(refused, e.Name)
			}
		}))
		ms, members := namesOf(testlock.NewSession(t, w.Client, watch), 3)
		l := testlock.Warm(t, multilock.New(members...))
		for i, m := range ms {
			hold := testlock.Take(t, m)
			w.Net.Reset()
			refused = nil
			_, _, err := l.TryLock(bg)
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != i || !errors.Is(err, rlock.ErrLocked) ||
				w.Net.Count() != 0 {
				t.Errorf("%d requests: %v", w.Net.Count(), err)
			}
			if len(refused) != 1 || refused[0] != m.Name() {
				t.Errorf("the observer is told of %q", refused)
			}
			testlock.Unlock(t, hold)
			if !free(t, ms...) {
				t.Errorf("m%d was taken, and something is left", i)
			}
		}
	})
}

// The client of a Cluster sends one pipeline to each master. The server of this test is the only master, with
// all slots.
func TestOnAClusterMembersInAnySlotsShareAPipeline(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		options := &redis.ClusterOptions{Addrs: []string{w.Net.Addr()}, Dialer: w.Net.Dial}
		faultproxy.InFakeTime(options)
		rdb := redis.NewClusterClient(options)
		t.Cleanup(func() { _ = rdb.Close() })
		ms, members := namesOf(testlock.NewSession(t, rdb), 12)
		l := testlock.Warm(t, multilock.New(members...))
		var counted pipelines
		testlock.Must(t, rdb.ForEachMaster(bg, func(_ context.Context, node *redis.Client) error {
			node.AddHook(&counted)
			return nil
		}))
		hold := testlock.Take(t, l)
		if got := counted.took(); got != [2]int32{1, 12} {
			t.Errorf("locked by %d pipelines of %d requests", got[0], got[1])
		}
		testlock.Unlock(t, hold)
		if got := counted.took(); got != [2]int32{1, 12} {
			t.Errorf("unlocked by %d pipelines of %d requests", got[0], got[1])
		}
		if !free(t, ms...) {
			t.Error("something is left")
		}
	})
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

func TestALateCopyOfAMembersRequestTakesNothing(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			proxy := faultproxy.InMemory(t, w.Dial)
			_, members := namesOf(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), 3)
			ms, _ := namesOf(testlock.NewSession(t, w.Client), 3)
			l := testlock.Warm(t, multilock.New(members...))
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			var n, released atomic.Int32
			var held atomic.Value // the key of the request that arrives late
			proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if isLock(r) && n.Add(1) == 1 {
					held.Store(r.Args[3])
					if canceled {
						cancel()
					}
					return faultproxy.Hold
				}
				return faultproxy.Pass
			})
			proxy.OnReply(func(r faultproxy.Request) {
				if isRelease(&r) && r.Args[3] == held.Load() {
					released.Add(1)
				}
			})
			if canceled {
				_, _, err := l.Lock(ctx)
				testlock.WantError(t, "Lock", err, context.Canceled)
			} else { // the second copy of the request gets the grant
				testlock.Works(t, l)
			}
			// The release of the attempt leaves a tombstone, so that the stale copy takes nothing.
			testlock.Eventually(t, "marked as over", func() bool { return released.Load() > 0 })
			testlock.Eventually(t, "the others are released", func() bool { return free(t, ms...) })
			testlock.Must(t, proxy.Release(proxy.Held()[0]))
			if !free(t, ms...) {
				t.Errorf("canceled %v: the late copy took something", canceled)
			}
		})
	}
}

// WaitAtMost bounds the wait for all members together. A member that is granted after that time is released.
func TestAWaitThatIsOverBetweenTwoMembersTakesNone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		slow := rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventAcquired && e.Name == "a" {
				time.Sleep(2 * time.Second)
			}
		}))
		a := rlock.New(testlock.NewSession(t, w.Client, slow), "a")
		b := rlock.New(testlock.NewSession(t, testlock.NewWire(t).Client), "b")
		theirs := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "a"))
		time.AfterFunc(time.Second/2, func() { _ = theirs.Unlock(bg) })
		_, _, err := multilock.New(b, a).Lock(bg, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Lock", err, rlock.ErrLocked)
		if synctest.Wait(); !free(t, a, b) {
			t.Error("something is left")
		}
	})
}

func TestAServerThatDiesInBetweenIsNamedAndTheOthersAreGivenBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		dying := testlock.NewWire(t)
		ms, members := namesOf(testlock.NewSession(t, w.Client), 2)
		l := testlock.Warm(t, multilock.New(append(members,
			rlock.New(testlock.NewSession(t, dying.Client), "x"))...))
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isLock(r) {
				dying.Kill()
			}
			return faultproxy.Pass
		})
		dying.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isLock(r) { // both requests are sent at once, and this one may arrive first
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		ctx, hold, err := l.Lock(bg)
		var member *multilock.MemberError
		if !errors.As(err, &member) || member.Index != 2 || member.Name != "x" ||
			errors.Is(err, rlock.ErrLocked) || errors.Is(err, rlock.ErrLost) {
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
		there := testlock.NewSession(t, frozen.Net.Client(t, func(o *redis.Options) {
			o.ReadTimeout = time.Second
		}))
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
		if !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(hold.Err(), rlock.ErrClosed) ||
			free(t, there) {
			t.Errorf("%v, %v", context.Cause(ctx), hold.Err())
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrClosed) || !free(t, there) {
			t.Errorf("%v", err)
		}
	})
}

// leaver is a Locker that is always taken. Its TryLock cancels the caller's context.
type leaver struct{ leave context.CancelFunc }

func (leaver) Name() string { return "taken" }

func (l leaver) Lock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return ctx, nil, ctx.Err()
}

func (l leaver) TryLock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	l.leave()
	return ctx, nil, &rlock.LockedError{Name: "taken"}
}

// The members that the call has are released in the background, while its next round begins. The next round
// ends at once, because the context has ended. The members must be released all the same.
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

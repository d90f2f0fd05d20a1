package multilock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Two of five servers fail in the same way. The first calls take at most one server timeout longer. Once the
// failures are known, calls are as fast as before.
func TestTwoBadServersOfFiveSlowNobodyDown(t *testing.T) {
	const timeout, delay = 250 * time.Millisecond, time.Millisecond
	always := func(a faultproxy.Action) func(*testlock.Wire) {
		return func(w *testlock.Wire) {
			w.Net.OnRequest(func(*faultproxy.Request) faultproxy.Action { return a })
		}
	}
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed":          (*testlock.Wire).Kill,
		"frozen":          func(w *testlock.Wire) { w.Net.Freeze() },
		"slow by 2 s":     func(w *testlock.Wire) { w.Net.SetDelay(time.Second) },
		"cut":             always(faultproxy.DropAndCut),
		"cutting replies": always(faultproxy.CutReply),
		"read only": func(w *testlock.Wire) {
			w.SetError("READONLY You can't write against a read only replica.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 5, func(t *testing.T, r servers) {
				q, err := multilock.NewQuorum(r.process(t), multilock.WithServerTimeout(timeout))
				testlock.Must(t, err)
				m := testlock.Warm(t, q.New("x"))
				for _, w := range r {
					w.Net.SetDelay(delay)
				}
				cycle := func() (took []time.Duration) {
					start := time.Now()
					lap := func() { took = append(took, time.Since(start)); start = time.Now() }
					ctx, hold := testlock.Lock(t, m, bg)
					lap()
					_, nested := testlock.Lock(t, m, ctx)
					lap()
					testlock.Must(t, nested.Extend(bg, time.Minute))
					lap()
					testlock.Unlock(t, nested)
					lap()
					testlock.Unlock(t, hold)
					lap()
					return took
				}
				usual := cycle()
				for _, w := range r[:2] {
					spoil(w)
				}
				if first := cycle(); slices.Max(first) > timeout+2*slices.Max(usual) {
					t.Errorf("the first cycle took %v, where a healthy one takes %v", first, usual)
				}
				for range 6 { // until the sessions know of the failures
					time.Sleep(timeout / 2)
					cycle()
				}
				for range 20 {
					if took := cycle(); slices.Max(took) > slices.Max(usual)+2*delay {
						t.Fatalf("a cycle takes %v, a healthy one %v", took, usual)
					}
				}
				for _, w := range r[:2] {
					w.Net.Thaw() // the requests that the servers then read change nothing
				}
				if time.Sleep(time.Minute); r.held() > 0 {
					t.Errorf("held by %d in the end", r.held())
				}
			})
		})
	}
}

// A frozen server grants its part only after the lock was unlocked. The process releases this part before its
// next request to the server, so the request is not refused.
func TestAPartThatComesTooLateRefusesNoLaterVoteOfItsProcess(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		r[2].Net.SetDelay(10 * time.Millisecond)
		for range 3 {
			testlock.Must(t, testlock.Cycle(bg, m))
		}
		r[0].Net.Freeze()
		start := time.Now()
		_, hold := testlock.Lock(t, m, bg)
		if took := time.Since(start); took > 100*time.Millisecond { // below the server timeout of 300 ms
			t.Errorf("it took %v", took)
		}
		testlock.Unlock(t, hold)
		r[0].Net.Thaw()
	})
}

// After a request was lost, go-redis waits for its reply for a minute. The process must not count the server
// as refusing for so long.
func TestALostRequestRefusesNoLaterVoteOfItsProcess(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.clients(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
		m := testlock.RedLock("x", all...)
		testlock.Warm(t, m)
		r[2].Net.Refuse(true)
		for range 3 {
			testlock.Must(t, testlock.Cycle(bg, m))
		}
		var lost atomic.Bool
		r[0].Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			if q.Script() != "" && lost.CompareAndSwap(false, true) {
				return faultproxy.Swallow
			}
			return faultproxy.Pass
		})
		ctx, cancel := context.WithTimeout(bg, 200*time.Millisecond)
		defer cancel()
		if _, _, err := m.TryLock(ctx); err == nil || !lost.Load() {
			t.Fatalf("%v, a request is lost: %v", err, lost.Load())
		}
		time.Sleep(300 * time.Millisecond) // until then, a TryLock waits for the end of the earlier attempt
		for range 5 {
			_, hold, err := m.TryLock(bg)
			testlock.Must(t, err)
			testlock.Unlock(t, hold)
		}
	})
}

func TestInspectSaysWhyThereIsNoMajority(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r {
			w.Net.Freeze()
		}
		_, err := m.Inspect(bg)
		if err == nil || !strings.Contains(err.Error(), "0 of 3 servers answered, 2 are needed: server ") ||
			strings.Count(err.Error(), ": no answer in time") != 3 {
			t.Error(err)
		}
		for _, w := range r {
			w.Net.Thaw()
		}
	})
}

// Calls of the holder are as fast as before when servers freeze or die while the lock is held.
func TestServersThatGoWhileTheLockIsHeldCostItsHolderNoTime(t *testing.T) {
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed": (*testlock.Wire).Kill, "frozen": func(w *testlock.Wire) { w.Net.Freeze() },
	} {
		for what, call := range map[string]func(context.Context, *multilock.RedLock, *rlock.Hold) error{
			"Unlock": func(_ context.Context, _ *multilock.RedLock, hold *rlock.Hold) error {
				return hold.Unlock(bg)
			},
			"Extend": func(_ context.Context, _ *multilock.RedLock, hold *rlock.Hold) error {
				return hold.Extend(bg, time.Hour)
			},
			"nested": func(ctx context.Context, m *multilock.RedLock, _ *rlock.Hold) error {
				return testlock.Cycle(ctx, m)
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				withServers(t, 5, func(t *testing.T, r servers) {
					m := r.warm(t)
					for _, w := range r {
						w.Net.SetDelay(time.Millisecond)
					}
					ctx, hold := testlock.Lock(t, m, bg)
					time.Sleep(time.Second)
					spoil(r[0])
					spoil(r[1])
					start := time.Now()
					testlock.Must(t, call(ctx, m, hold))
					if took := time.Since(start); took > 20*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					_ = hold.Unlock(bg)
				})
			})
		}
	}
}

// Proves: RedLock
func TestAHoldOutlivesTheLossOfAMinorityAndNotOfAMajority(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		ctx, hold := testlock.Lock(t, r.redLock(t), bg)
		synctest.Wait()
		r[0].Kill()
		r[1].Net.Freeze()
		time.Sleep(5 * time.Minute)
		testlock.Must(t, hold.Err())
		// The other two servers keep their parts until the context has ended. So no other holder can have had
		// a majority before.
		var released atomic.Int32
		for _, w := range r[3:] {
			first := sync.OnceFunc(func() {
				if released.Add(1); ctx.Err() == nil || leaseOf(w, redKey) <= 0 {
					t.Errorf("the context ended when the lock was over: %v", leaseOf(w, redKey))
				}
			})
			w.Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
				if testlock.Script(q.Script()) == "release" {
					first()
				}
				return faultproxy.Pass
			})
		}
		r[2].Kill()
		<-ctx.Done()
		if late := time.Since(hold.Deadline()); late != 0 {
			t.Errorf("lost %v after its deadline", late)
		}
		testlock.WantError(t, "cause", context.Cause(ctx), rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		r[1].Net.Thaw()
		time.Sleep(time.Minute)
		if n := r.held(); n != 0 || released.Load() != 2 {
			t.Errorf("held by %d, and %d have been told", n, released.Load())
		}
	})
}

func TestTheErrorNamesTheServersThatFailAndHow(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[0].Kill()
		r[1].SetError("NOPERM no rights")
		_, _, err := m.TryLock(bg)
		testlock.OnePrefix(t, "TryLock", err)
		for _, what := range []string{
			`lock "x": 1 of 3 servers answered, 2 are needed: `, r[1].Net.Addr() + ": NOPERM",
			r[0].Net.Addr() + ": ",
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v does not tell of %q", err, what)
			}
		}
	})
}

func TestTheErrorOfAServerThatIsKnownToFailSaysHow(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[0].Kill()
		r[1].Kill()
		_, _, _ = m.TryLock(bg)
		time.Sleep(2 * time.Second) // until go-redis stops dialing
		if _, _, err := m.TryLock(bg); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%v", err)
		}
	})
}

// Requests are sent again to a server that was left out because it was slow, once it answers.
func TestAServerThatWasSlowVotesAgain(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r[:2] {
			w.Net.Freeze()
		}
		testlock.Works(t, m)
		time.Sleep(time.Second)
		for _, w := range r[:2] {
			w.Net.Thaw()
		}
		testlock.Eventually(t, "asked again", func() bool {
			hold := testlock.Take(t, m)
			defer testlock.Unlock(t, hold)
			return r.unanimous()
		})
	})
}

// A TryLock without a majority releases its parts. This also holds on a server to which the request arrives
// after the release.
func TestALateCopyOfALostVoteTakesNothing(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r[:3] { // the requests to three servers are delayed
			w.Net.OnRequest(holds("acquire"))
		}
		if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(20 * time.Second) // go-redis gives up the request, and then the release is sent
		for _, w := range r[:3] {
			if len(w.Net.Held()) == 0 {
				t.Error("it was not asked")
			}
			for _, q := range w.Net.Held() {
				testlock.Must(t, w.Net.Release(q))
			}
			w.Net.OnRequest(nil)
		}
		if n := r.held(); n > 0 {
			t.Errorf("a late request was granted: %d hold", n)
		}
	})
}

// panicky is a hook of a client. It panics if a command is of the kind that set has named.
type panicky struct {
	at atomic.Pointer[func(redis.Cmder) bool]
}

func (p *panicky) set(at func(redis.Cmder) bool) { p.at.Store(&at) }

func (p *panicky) around(cmds []redis.Cmder, next func() error) error {
	if at := p.at.Load(); at != nil && slices.ContainsFunc(cmds, *at) {
		panic("on purpose")
	}
	return next()
}

// panicking returns the RedLock "x" of a new process, and the hooks of its clients.
func (r servers) panicking(t *testing.T) ([]*panicky, *multilock.RedLock) {
	var hooks []*panicky
	var all []*rlock.Session
	for _, w := range r {
		rdb, hook := w.Net.Client(t), new(panicky)
		rdb.AddHook(testlock.Around(hook.around))
		all, hooks = append(all, testlock.NewSession(t, rdb)), append(hooks, hook)
	}
	m := testlock.Warm(t, testlock.RedLock("x", all...))
	synctest.Wait()
	return hooks, m
}

// Proves: panics
func TestAClientThatPanicsIsOneServerThatFails(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hooks, m := r.panicking(t)
		var panics atomic.Int64
		all := func(redis.Cmder) bool { panics.Add(1); return true }
		none := func(redis.Cmder) bool { return false }
		hooks[0].set(all)
		ctx, hold := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		testlock.Unlock(t, hold)
		if synctest.Wait(); panics.Load() == 0 {
			t.Error("the first was not asked")
		}
		hooks[1].set(all)
		if _, _, err := m.Lock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("two of three: %v", err)
		}
		hooks[1].set(none)
		time.Sleep(time.Second) // the requests to the second server have ended
		_, hold = testlock.Lock(t, m, bg)
		synctest.Wait()
		hooks[0].set(none)
		hooks[1].set(all)
		if err := hold.Unlock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("Unlock: %v", err)
		}
		hooks[1].set(none)
		testlock.Eventually(t, "free", func() bool { return r.held() == 0 })
	})
}

// The first server always fails. Requests of the failed call to the second server may still be in flight, but
// the next Lock does not fail because of them.
func TestALockRightAfterAFailedOneDoesNotFailForThat(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hooks, m := r.panicking(t)
		all, none := func(redis.Cmder) bool { return true }, func(redis.Cmder) bool { return false }
		hooks[0].set(all)
		hooks[1].set(all)
		if _, _, err := m.Lock(bg); err == nil {
			t.Error("two of three are no minority")
		}
		hooks[1].set(none)
		testlock.Works(t, m)
	})
}

// A silent server does not delay the requests to the other servers, even if other sessions wanted the lock
// there.
func TestASilentServerWhoseLockOthersWantedSlowsNoVote(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		foreign(r[2])
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		hold := testlock.Take(t, m) // meanwhile, its third part waits in the queue of the last server
		time.Sleep(time.Second)
		r[2].Down(true)
		testlock.Unlock(t, hold)
		time.Sleep(5 * time.Second)
		testlock.Works(t, m) // connects
		synctest.Wait()
		start := time.Now()
		hold = testlock.Take(t, m)
		if took := time.Since(start); took > 3*time.Millisecond {
			t.Errorf("a Lock of one trip takes %v", took)
		}
		testlock.Unlock(t, hold)
		r[2].Down(false)
		time.Sleep(time.Minute)
	})
}

// Close of one session ends the quorum, and closes the quorum's own sessions one after another. If a
// RedLock is made meanwhile, its methods return ErrClosed.
func TestARedLockThatIsNamedWhileItsQuorumClosesSaysSo(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		for range 20 {
			all := r.process(t)
			q, err := multilock.NewQuorum(all)
			testlock.Must(t, err)
			testlock.Warm(t, q.New("x"))
			start := make(chan struct{})
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					<-start
					if err := testlock.Cycle(bg, q.New("x")); err != nil && !errors.Is(err, rlock.ErrClosed) {
						t.Error(err)
					}
				})
			}
			close(start)
			_ = all[0].Close()
			wg.Wait()
		}
	})
}

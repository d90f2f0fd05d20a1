package multilock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// longTurn lets a session pass its locks on to its own goroutines for as long as they wait.
var longTurn = rlock.WithHandover(time.Hour)

// queueUp starts n goroutines that lock and unlock l. Each begins to wait before the next one starts. served
// receives the number of each goroutine when it has the lock. queueUp works only in fake time.
func queueUp(t *testing.T, n int, l rlock.Locker) (served <-chan int, wg *sync.WaitGroup) {
	order, wg := make(chan int, n), new(sync.WaitGroup)
	for i := range n {
		wg.Go(func() {
			_, hold, err := l.Lock(bg)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			order <- i
			if err := hold.Unlock(bg); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		synctest.Wait()
	}
	return order, wg
}

// The session passes the first member on to its next goroutine in memory. This goroutine acquires the other
// members when they are released. So the goroutines get the lock in the order of their calls, and none of
// them starts over.
func TestGoroutinesOfASessionTakeTurnsInTheirOrder(t *testing.T) {
	for _, servers := range []int{1, 2} {
		testlock.InFakeTime(t, func(t *testing.T) {
			var wires []*testlock.Wire
			var ms []*rlock.Mutex
			var members []rlock.Locker
			for range servers {
				w := testlock.NewWire(t)
				m, l := namesOf(testlock.NewSession(t, w.Client, longTurn), 2)
				wires, ms, members = append(wires, w), append(ms, m...), append(members, l...)
			}
			l := testlock.Warm(t, multilock.New(members...))
			first := testlock.Take(t, l)
			const n = 20
			served, wg := queueUp(t, n, l)
			for _, w := range wires {
				w.Net.Reset()
			}
			testlock.Unlock(t, first)
			wg.Wait()
			// Each hand-over releases and acquires all members except the first.
			sent, want := 0, n*2*(2*servers-1)+2*servers
			for _, w := range wires {
				sent += w.Net.Count("EVALSHA", "EVAL")
			}
			if sent != want {
				t.Errorf("%d servers: %d requests for %d hand-overs and a release, want %d",
					servers, sent, n, want)
			}
			for i := range n {
				if got := <-served; got != i {
					t.Errorf("waiter %d is served as number %d", got, i)
				}
			}
			if !free(t, ms...) {
				t.Error("something is left")
			}
		})
	}
}

// Sessions that want the same members wait in the queue of one member, even if they name the members in
// another order. This holds although newcomers, which do not know of the waiters, take members for a moment.
// If the sessions waited in two queues, each would be granted a member that another one needs.
func TestACrowdWaitsInOneQueue(t *testing.T) {
	for name, c := range map[string]struct {
		one, two testlock.Maker
		second   string
	}{
		"reentrant":   {rlock.New, rlock.New, "b"},
		"fair":        {fairlock.New, fairlock.New, "b"},
		"of one name": {rlock.New, fairlock.New, "a"},
	} {
		members := func(s *rlock.Session) []rlock.Locker {
			return []rlock.Locker{c.one(s, "a"), c.two(s, c.second)}
		}
		t.Run(name, func(t *testing.T) { crowd(t, 0, 6, members) })
		t.Run(name+", and newcomers", func(t *testing.T) { crowd(t, 40*time.Millisecond, 9, members) })
	}
}

// Members that do not share a pipeline are tried one after another, in the order of their names.
func TestMembersOfAnyKindAreWaitedForInOneOrder(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		w := testlock.NewWire(t)
		members := func() (a, b rlock.Locker) {
			s := testlock.NewSession(t, w.Net.Client(t))
			return rwlock.New(s, "a"), semaphore.New(s, "b", 1).Locker(1)
		}
		a, b := members()
		hold := testlock.Take(t, multilock.New(a, b))
		c, d := members()
		e, f := members()
		one := testlock.Go(bg, multilock.New(c, d))
		time.Sleep(time.Second) // so that one is first in the queue
		two := testlock.Go(bg, multilock.New(f, e))
		time.Sleep(time.Second)
		ab, err := w.ZMembers("lockline:w:{a}:q")
		testlock.Must(t, err)
		if len(ab) != 2 || w.Exists("lockline:p:{b}:q") {
			t.Errorf("%d wait for a, others for b: %v", len(ab), w.Exists("lockline:p:{b}:q"))
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, one))
		testlock.Unlock(t, testlock.Granted(t, two))
	})
}

// crowd runs 15 sessions that lock the members again and again. Before each call, a session pauses for a
// random time of up to away. requests is the maximum of requests per cycle, on average.
func crowd(t *testing.T, away time.Duration, requests int64, members func(*rlock.Session) []rlock.Locker) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const inside, lasts = 5 * time.Millisecond, time.Second / 2
		const trip = 200 * time.Microsecond
		w.Net.SetDelay(trip / 2)
		ctx, stop := context.WithCancel(bg)
		var cycles atomic.Int64
		var wg sync.WaitGroup
		for i := range 15 {
			s := testlock.NewSession(t, w.Net.Client(t))
			in := members(s)
			if i%2 == 0 {
				slices.Reverse(in)
			}
			l := multilock.New(in...)
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = l.Do(ctx, func(context.Context) error {
						time.Sleep(inside)
						cycles.Add(1)
						return nil
					})
					time.Sleep(rand.N(away + 1))
				}
			})
		}
		w.Net.Reset()
		time.Sleep(lasts)
		done, sent := cycles.Load(), int64(w.Net.Count("EVALSHA", "EVAL"))
		stop()
		wg.Wait()
		// A release hands the first member over to the next session by a message. That session then tries the
		// second member.
		if most := int64(lasts / (inside + 2*trip)); done < most*9/10 || sent > requests*done {
			t.Errorf("%d cycles of %d, with %d requests", done, most, sent)
		}
	})
}

// Sessions that want a and b do not hand a around in vain, while another session holds b for a long time.
func TestAMemberThatIsHeldForLongIsWaitedForInItsQueue(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		hold := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "b"))
		w.Net.SetDelay(100 * time.Microsecond)
		const n = 30
		var waits []<-chan testlock.Grant
		for range n {
			s := testlock.NewSession(t, w.Net.Client(t))
			waits = append(waits, testlock.Go(bg, multilock.New(rlock.New(s, "a"), rlock.New(s, "b"))))
		}
		time.Sleep(time.Second)
		// Each session tries both once. Twice, it is granted a, is refused b, and releases a. Then it waits
		// for b.
		if sent := w.Net.Count("EVALSHA", "EVAL"); sent > 15*n {
			t.Errorf("%d requests of %d that wait", sent, n)
		}
		testlock.Unlock(t, hold)
		served := make(chan *rlock.Hold)
		for _, got := range waits {
			go func() { served <- (<-got).Hold }()
		}
		for range waits {
			testlock.Unlock(t, <-served)
		}
	})
}

func TestWhoWaitsForSeveralIsNotHandedAFew(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, w *testlock.Wire, a, b, c *rlock.Mutex){
		"one of them was lost": func(t *testing.T, _ *testlock.Wire, a, b, _ *rlock.Mutex) {
			ctx, hold := testlock.Lock(t, multilock.New(a, b), bg)
			served, wg := queueUp(t, 2, multilock.New(a, b))
			testlock.ForceUnlock(t, b)
			<-ctx.Done() // the next renewal finds the loss
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			wg.Wait()
			if len(served) != 2 {
				t.Errorf("%d were served", len(served))
			}
		},
		"more are wanted than are unlocked": func(t *testing.T, w *testlock.Wire, a, b, c *rlock.Mutex) {
			other := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), c.Name()))
			hold := testlock.Take(t, multilock.New(a, b))
			served, wg := queueUp(t, 1, multilock.New(a, b, c))
			testlock.Unlock(t, hold)
			if synctest.Wait(); !free(t, a, b) {
				t.Error("it holds while it waits for c")
			}
			testlock.Unlock(t, other)
			wg.Wait()
			if len(served) != 1 {
				t.Error("it was not served")
			}
		},
		"another one waits for the second": func(t *testing.T, _ *testlock.Wire, a, b, _ *rlock.Mutex) {
			hold := testlock.Take(t, multilock.New(a, b))
			lone, wg := queueUp(t, 1, b)
			both, wg2 := queueUp(t, 3, multilock.New(a, b))
			testlock.Unlock(t, hold)
			wg.Wait()
			wg2.Wait()
			if len(lone) != 1 || len(both) != 3 {
				t.Errorf("%d and %d were served", len(lone), len(both))
			}
		},
		"an owner has the second already": func(t *testing.T, _ *testlock.Wire, a, b, _ *rlock.Mutex) {
			at, outer := testlock.Lock(t, b, rlock.WithOwner(bg))
			hold := testlock.Take(t, a)
			got := testlock.Go(at, multilock.New(a, b))
			synctest.Wait()
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, got))
			testlock.Unlock(t, outer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				ms, _ := namesOf(testlock.NewSession(t, w.Client, longTurn), 3)
				test(t, w, ms[0], ms[1], ms[2])
				if synctest.Wait(); !free(t, ms...) {
					t.Error("something is left")
				}
			})
		})
	}
}

// A session closes at once, although a MultiLock that waits in another session has a member in this session.
func TestAWaitForSeveralHoldsUpNoClose(t *testing.T) {
	for _, servers := range []int{1, 3} { // with three servers, b is a RedLock
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			all := newServers(t, servers).process(t)
			var b rlock.Locker = rlock.New(all[0], "b")
			if servers > 1 {
				b = testlock.RedLock("b", all...)
			}
			a := rlock.New(testlock.NewSession(t, w.Client), "a")
			hold := testlock.Take(t, a)
			ctx, cancel := context.WithCancel(bg)
			got := testlock.Go(ctx, multilock.New(a, b))
			synctest.Wait()
			testlock.Must(t, all[0].Close()) // returns an error if it had to give up waiting
			cancel()
			<-got
			testlock.Unlock(t, hold)
		})
	}
}

func TestASessionClosesAmongThoseThatWantItsLocksBesides(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.Net.SetDelay(100 * time.Microsecond)
		for range 20 {
			here, there := testlock.NewSession(t, w.Client, longTurn),
				testlock.NewSession(t, w.Client, longTurn)
			a, b, c := rlock.New(here, "a"), rlock.New(there, "b"), rlock.New(here, "c")
			ctx, cancel := context.WithCancel(bg)
			var wg sync.WaitGroup
			for g := range 6 {
				wg.Go(func() {
					l := multilock.New(a, b, c)
					if g%2 == 0 {
						l = multilock.New(b, c, a)
					}
					for ctx.Err() == nil {
						at, leave := context.WithCancel(ctx)
						if g == 5 {
							at, leave = context.WithTimeout(ctx, rand.N(time.Millisecond))
						}
						if errors.Is(testlock.Cycle(at, l), rlock.ErrClosed) {
							cancel()
						}
						leave()
					}
				})
			}
			time.Sleep(rand.N(8 * time.Millisecond))
			testlock.Must(t, there.Close())
			cancel()
			wg.Wait()
			for _, m := range []*rlock.Mutex{a, c, rlock.New(here, "b")} {
				testlock.Works(t, m)
			}
			testlock.Must(t, here.Close())
		}
	})
}

// Waiters leave at random times, even while they are being granted a lock. The sets of members overlap, their
// orders differ, and some calls are nested. No lock has two holders, tokens grow, and no lock is left taken.
// Proves: MultiLock
func TestHandingSeveralOnWhileWaitersLeave(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		r := newServers(t, 3)
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		one, two := r[0].Client, r[1].Client
		here, there := testlock.NewSession(t, one, rlock.WithHandover(20*time.Millisecond)),
			testlock.NewSession(t, two, longTurn)
		ms := []interface {
			rlock.Locker
			Inspect(context.Context) (rlock.State, error)
		}{
			rlock.New(here, "a"), rlock.New(here, "b"), rlock.New(there, "c"),
			redisson.New(testlock.NewSession(t, two, longTurn), "d"),
			testlock.RedLock("e", r.process(t)...),
		}
		var inside [5]atomic.Int32
		var last [5]atomic.Int64
		var entered, left atomic.Int64
		ctx, stop := context.WithCancel(bg)
		defer stop()
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 9))
				for ctx.Err() == nil {
					set := [][]int{{0, 1, 2}, {2, 1, 0}, {3, 4, 0}, rnd.Perm(5)[:1+rnd.IntN(3)]}[g%4]
					var members []rlock.Locker
					for _, i := range set {
						members = append(members, ms[i])
					}
					ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(40_000))*time.Microsecond)
					if rnd.IntN(3) == 0 {
						ctx = rlock.WithOwner(ctx)
					}
					l := multilock.New(members...)
					at, hold, err := l.Lock(ctx)
					if err != nil {
						cancel()
						left.Add(1)
						continue
					}
					entered.Add(1)
					for n, i := range set {
						if inside[i].Add(1) != 1 {
							t.Errorf("two hold lock %d", i)
						}
						p := hold.Parts()[n]
						if was := last[i].Swap(p.Token()); p.Name() != ms[i].Name() || was >= p.Token() {
							t.Errorf("part %d of %v is %s, %d after %d", n, set, p.Name(), p.Token(), was)
						}
					}
					if rnd.IntN(4) == 0 {
						if _, h, err := l.Lock(at); err == nil {
							_ = h.Unlock(bg)
						}
					}
					for _, i := range set {
						inside[i].Add(-1)
					}
					if err := hold.Unlock(bg); err != nil {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		time.Sleep(time.Second)
		stop()
		wg.Wait()
		if in, out := entered.Load(), left.Load(); in < 30 || out < 30 {
			t.Errorf("%d have entered, and %d have left", in, out)
		}
		testlock.Eventually(t, "all is free", func() bool {
			for _, m := range ms {
				if st := testlock.Inspect(t, m); st.Held || len(st.Queue) > 0 {
					return false
				}
			}
			return true
		})
	})
}

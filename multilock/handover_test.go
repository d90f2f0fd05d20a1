package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// longStreak lets a session keep its locks for as long as its own goroutines wait.
var longStreak = rlock.WithStreak(time.Minute)

// queueUp starts n goroutines that wait for l one behind the other, and tells who has it.
func queueUp(t *testing.T, waits testlock.Waits, n int, l rlock.Locker) (served <-chan int, wg *sync.WaitGroup) {
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
		<-waits
	}
	return order, wg
}

func TestSeveralLocksAreHandedOnTogetherInMemory(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("on %d servers", servers), func(t *testing.T) {
			waits := make(testlock.Waits, 100)
			var proxies []*faultproxy.Proxy
			var ms []*rlock.Mutex
			var members []rlock.Locker
			for range servers {
				proxy := faultproxy.New(t, testredis.Start(t).Addr)
				m, l := namesOf(testlock.NewSession(t, proxy.Client(t), longStreak, rlock.WithObserver(waits)), 2)
				proxies, ms, members = append(proxies, proxy), append(ms, m...), append(members, l...)
			}
			l := multilock.New(members...)
			testlock.Warm(t, l)
			_, hold := testlock.Lock(t, l, bg)
			var first []int64
			for _, p := range hold.Parts() {
				first = append(first, p.Token())
			}
			const n = 20
			served, wg := queueUp(t, waits, n, l)
			for _, p := range proxies {
				p.Reset()
			}
			testlock.Unlock(t, hold)
			wg.Wait()
			for _, p := range proxies {
				if sent := p.Count("EVALSHA", "EVAL"); sent != 1 {
					t.Errorf("%d requests for %d hand-overs and a release", sent, n)
				}
			}
			for i := range n {
				if who := <-served; who != i {
					t.Errorf("waiter %d is served as number %d", who, i)
				}
			}
			if !free(t, ms...) {
				t.Error("something is left")
			}
			_, next := testlock.Lock(t, l, bg)
			for i, p := range next.Parts() {
				if p.Token() <= first[i]+n {
					t.Errorf("token %d after %d and %d hand-overs", p.Token(), first[i], n)
				}
			}
			testlock.Unlock(t, next)
		})
	}
}

func TestWhoWaitsForSeveralIsNotHandedAFew(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		waits := make(testlock.Waits, 100)
		ms, _ := namesOf(testlock.NewSession(t, rdb, longStreak, rlock.WithObserver(waits)), 3)
		a, b, c := ms[0], ms[1], ms[2]

		t.Run("one of them was lost", func(t *testing.T) {
			ms, _ := namesOf(testlock.NewSession(t, rdb, longStreak, rlock.WithObserver(waits), rlock.WithWatchdogTimeout(3*time.Second)), 2)
			a, b := ms[0], ms[1]
			ctx, hold := testlock.Lock(t, multilock.New(a, b), bg)
			served, wg := queueUp(t, waits, 2, multilock.New(a, b))
			testlock.ForceUnlock(t, b)
			<-ctx.Done() // a renewal has told the session
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			wg.Wait()
			if len(served) != 2 {
				t.Errorf("%d were served", len(served))
			}
		})
		t.Run("more are wanted than are unlocked", func(t *testing.T) {
			_, other := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), c.Name()), bg)
			_, hold := testlock.Lock(t, multilock.New(a, b), bg)
			served, wg := queueUp(t, waits, 1, multilock.New(a, b, c))
			testlock.Unlock(t, hold)
			<-waits // for c
			if !free(t, a, b) {
				t.Error("it holds while it waits")
			}
			testlock.Unlock(t, other)
			wg.Wait()
			if len(served) != 1 {
				t.Error("it was not served")
			}
		})
		t.Run("another one waits for the second", func(t *testing.T) {
			_, hold := testlock.Lock(t, multilock.New(a, b), bg)
			lone, wg := queueUp(t, waits, 1, b)
			both, wg2 := queueUp(t, waits, 3, multilock.New(a, b))
			testlock.Unlock(t, hold)
			wg.Wait()
			wg2.Wait()
			if len(lone) != 1 || len(both) != 3 {
				t.Errorf("%d and %d were served", len(lone), len(both))
			}
		})
		t.Run("an owner has the second already", func(t *testing.T) {
			owner := rlock.WithOwner(bg)
			at, outer := testlock.Lock(t, b, owner)
			_, hold := testlock.Lock(t, a, bg)
			got := make(chan error, 1)
			go func() { got <- testlock.Cycle(at, multilock.New(a, b)) }()
			<-waits
			testlock.Unlock(t, hold)
			testlock.Must(t, <-got)
			testlock.Unlock(t, outer)
		})
		if !free(t, ms...) {
			t.Error("something is left")
		}
	})
}

// Whatever a waiter of another session wants along, its session closes at once.
func TestWhatIsWantedAlongHoldsUpNoClose(t *testing.T) {
	for name, along := range map[string]func() (*rlock.Session, *rlock.Mutex){
		"a reentrant lock": func() (*rlock.Session, *rlock.Mutex) {
			s := testlock.NewSession(t, testredis.Start(t).Client(t))
			return s, rlock.New(s, "b")
		},
		"a RedLock": func() (*rlock.Session, *rlock.Mutex) {
			all := sessions(t, startServers(t, 3).direct)
			return all[0], multilock.NewRedLock("b", all...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			waits := make(testlock.Waits, 100)
			a := rlock.New(testlock.NewSession(t, testredis.Start(t).Client(t), rlock.WithObserver(waits)), "a")
			s, b := along()
			_, hold := testlock.Lock(t, a, bg)
			ctx, cancel := context.WithCancel(bg)
			var wg sync.WaitGroup
			wg.Go(func() { _, _, _ = multilock.New(a, b).Lock(ctx) })
			<-waits
			testlock.Must(t, s.Close()) // an error: it gave up waiting
			cancel()
			wg.Wait()
			testlock.Unlock(t, hold)
		})
	}
}

// What was put aside for somebody who does not get it is released by Unlock like everything else.
func TestUnlockAnswersForWhatWasPutAsideInVain(t *testing.T) {
	for name, check := range map[string]func(t *testing.T, proxy *faultproxy.Proxy, b *rlock.Mutex, hold *rlock.Hold){
		"with its error": func(t *testing.T, _ *faultproxy.Proxy, b *rlock.Mutex, hold *rlock.Hold) {
			testlock.ForceUnlock(t, b)
			if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("b was forced, and Unlock says %v", err)
			}
		},
		"when it has been": func(t *testing.T, proxy *faultproxy.Proxy, b *rlock.Mutex, hold *rlock.Hold) {
			proxy.SetDelay(100 * time.Millisecond)
			testlock.Unlock(t, hold)
			_, next := testlock.TryLock(t, b, bg) // the session itself knows whether its release is under way
			proxy.SetDelay(0)
			testlock.Unlock(t, next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			waits := make(testlock.Waits, 100)
			proxy := faultproxy.New(t, testredis.Start(t).Addr)
			a := rlock.New(testlock.NewSession(t, testredis.Start(t).Client(t), longStreak, rlock.WithObserver(waits)), "a")
			b := rlock.New(testlock.NewSession(t, proxy.Client(t), longStreak), "b")
			l := multilock.New(a, b)
			testlock.Warm(t, l)
			at, outer := testlock.Lock(t, a, bg) // so that the unlock of both leaves a held
			_, hold := testlock.Lock(t, l, at)
			ctx, cancel := context.WithCancel(bg)
			var wg sync.WaitGroup
			wg.Go(func() { _, _, _ = l.Lock(ctx) })
			<-waits
			check(t, proxy, b, hold)
			cancel()
			wg.Wait()
			testlock.Unlock(t, outer)
		})
	}
}

// b is put aside for an owner, while another goroutine of the owner waits for it with a fixed lease, and then what was put aside is taken
// back: the one that waits gets b, for its own lease.
func TestWhatWasPutAsideInVainIsNotRenewedForAFixedLease(t *testing.T) {
	t.Parallel()
	waits := make(testlock.Waits, 100)
	s := testlock.NewSession(t, testredis.Start(t).Client(t), longStreak, rlock.WithWatchdogTimeout(3*time.Second), rlock.WithObserver(waits))
	a, b := rlock.New(s, "a"), rlock.New(s, "b")
	l := multilock.New(a, b)
	at, outer := testlock.Lock(t, a, bg)
	_, hold := testlock.Lock(t, l, at)
	owner := rlock.WithOwner(bg)
	ctx, cancel := context.WithCancel(owner)
	var wg sync.WaitGroup
	wg.Go(func() { _, _, _ = l.Lock(ctx) })
	testlock.Receive(t, "wait", waits)
	wg.Go(func() {
		if _, _, err := b.Lock(owner, rlock.WithLease(300*time.Millisecond)); err != nil { // and lets it run out
			t.Error(err)
		}
	})
	testlock.Receive(t, "wait", waits)
	testlock.Unlock(t, hold)
	cancel()
	wg.Wait()
	testlock.Eventually(t, "b has run out", func() bool { return free(t, b) })
	_ = outer.Unlock(bg)
}

// A request for the replicas goes on without whoever is canceled, who goes on, too. For the race detector.
func TestConfirmationsAreLeftBehind(t *testing.T) {
	s := testlock.NewSession(t, testredis.Start(t).Client(t), rlock.WithReplicas(1, time.Millisecond))
	_, members := namesOf(s, 8)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			l := multilock.New(members[2*g : 2*g+1+g%2]...)
			for range 600 {
				ctx, cancel := context.WithTimeout(bg, 50*time.Microsecond+rand.N(800*time.Microsecond))
				if _, h, err := l.Lock(ctx); err == nil {
					_ = h.Unlock(bg)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

func TestASessionClosesAmongThoseWhoWantItsLocksAlong(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	for range 40 {
		here, there := testlock.NewSession(t, rdb, longStreak), testlock.NewSession(t, rdb, longStreak)
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
					at, leave := context.WithTimeout(ctx, time.Minute)
					if g == 5 {
						at, leave = context.WithTimeout(ctx, rand.N(300*time.Microsecond))
					}
					_, h, err := l.Lock(at)
					leave()
					if err == nil {
						_ = h.Unlock(bg)
					} else if errors.Is(err, rlock.ErrClosed) {
						return
					}
				}
			})
		}
		<-time.After(rand.N(8 * time.Millisecond))
		testlock.Must(t, there.Close())
		cancel()
		wg.Wait()
		for _, m := range []*rlock.Mutex{a, c, rlock.New(here, "b")} {
			_, hold := testlock.Lock(t, m, bg)
			testlock.Unlock(t, hold)
		}
		testlock.Must(t, here.Close())
	}
}

// Waiters leave at any moment, also when they are being handed what they waited for; sets overlap and have any order,
// some enter twice. Nobody meets another, tokens grow, and nothing is left.
func TestHandingSeveralOnWhileWaitersLeave(t *testing.T) {
	one, two := testredis.Start(t).Client(t), testredis.Start(t).Client(t)
	here, there := testlock.NewSession(t, one, rlock.WithStreak(20*time.Millisecond)), testlock.NewSession(t, two, longStreak)
	ms := []*rlock.Mutex{rlock.New(here, "a"), rlock.New(here, "b"), rlock.New(there, "c"), rlock.New(testlock.NewSession(t, two, longStreak, rlock.RedissonKeys()), "d"),
		multilock.NewRedLock("e", testlock.NewSession(t, one), testlock.NewSession(t, two), testlock.NewSession(t, testredis.Start(t).Client(t)))}
	var inside [5]atomic.Int32
	var last [5]atomic.Int64
	var entered, left atomic.Int64
	during, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for g := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			for during.Err() == nil {
				set := [][]int{{0, 1, 2}, {2, 1, 0}, {3, 4, 0}, rnd.Perm(5)[:1+rnd.IntN(3)]}[g%4]
				var members []rlock.Locker
				for _, i := range set {
					members = append(members, ms[i])
				}
				// Half of them wait for 60 ms at most, a quarter for 120 ms: some leave on any machine, and some get in.
				wait := time.Duration(rnd.IntN(60_000)) * time.Microsecond << bits.TrailingZeros(1<<6|rnd.Uint())
				ctx, cancel := context.WithTimeout(during, wait)
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
	begun := time.Now()
	testlock.Eventually(t, "50 have entered and 50 have left", func() bool {
		return entered.Load() >= 50 && left.Load() >= 50 && time.Since(begun) > 2*time.Second
	})
	stop()
	wg.Wait()
	t.Logf("%d holds, %d left", entered.Load(), left.Load())
	testlock.Eventually(t, "all is free", func() bool { return free(t, ms...) })
}

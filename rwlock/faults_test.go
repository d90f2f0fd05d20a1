package rwlock_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

const short, long = 600 * time.Millisecond, 3 * time.Second // leases: one to be lost, and one that outlasts a slow machine

func TestADeadReaderHoldsAWriterUpForItsLeaseAndTouchesNoOthers(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	dying := locksOf(t, proxy.Client(t, testlock.Impatient), 1, rlock.WithWatchdogTimeout(short))[0]
	locks := locksOf(t, server.Client(t), 2, rlock.WithWatchdogTimeout(long))
	dctx, dead := lock(t, bg, dying.RLocker())
	actx, alive := lock(t, bg, locks[0].RLocker())
	w := begin(bg, locks[1])
	queue(t, locks[0], 1)
	proxy.BlackHole(true, true)
	testlock.Receive(t, "the dead one's context ends", dctx.Done())
	testlock.Eventually(t, "one reader is left", func() bool { return len(inspect(t, locks[0]).Readers) == 1 })
	time.Sleep(long / 2) // it was renewed
	if actx.Err() != nil || alive.Err() != nil {
		t.Error("the living reader lost the lock, too")
	}
	waits(t, "a writer beside a reader that lives", w)
	unlock(t, alive)
	hold := await(t, w).hold
	proxy.BlackHole(false, false)
	proxy.CutAll()
	if err := dead.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("the dead one's Unlock: %v", err)
	}
	time.Sleep(20 * time.Millisecond)
	if st := inspect(t, locks[0]); st.Writer == nil || hold.Err() != nil {
		t.Errorf("the dead one's Unlock has ended another's hold: %+v", st)
	}
	unlock(t, hold)
}

func TestManyDeadReadersDoNotMakeAWriterWaitLonger(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 1)
	const dead = 5000
	now := rdb.Time(bg).Val().UnixMicro()
	_, r := lock(t, bg, locks[0].RLocker()) // so that the keys have a lease
	pipe := rdb.Pipeline()
	for i := range dead { // as sessions leave them that have died
		owner := "gone:" + time.Duration(i).String()
		pipe.Do(bg, "ZADD", "lockline:w:{x}", now-1000, owner)
		pipe.HSet(bg, "lockline:w:{x}:h", owner, "1 1 1@h ")
	}
	pipe.HIncrBy(bg, "lockline:w:{x}:h", "u", dead)
	_, err := pipe.Exec(bg)
	testlock.Must(t, err)
	unlock(t, r)
	_, w := lock(t, bg, locks[0], rlock.WaitAtMost(5*time.Second))
	unlock(t, w)
	if n := rdb.Exists(bg, "lockline:w:{x}", "lockline:w:{x}:h").Val(); n != 0 {
		t.Errorf("%d keys stay", n)
	}
}

func TestAFixedLeaseOfAReaderNeitherEndsNorProlongsAnothers(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2, rlock.WithWatchdogTimeout(long))
	_, long := lock(t, bg, locks[0].RLocker(), rlock.WithLease(15*time.Second))
	ctx, brief := lock(t, bg, locks[0].RLocker(), rlock.WithLease(3*time.Second))
	_, renewed := lock(t, bg, locks[0].RLocker())
	if len(inspect(t, locks[1]).Readers) != 3 {
		t.Error("they share an entry")
	}
	testlock.Receive(t, "the brief one's context ends", ctx.Done())
	if brief.Err() == nil || long.Err() != nil || renewed.Err() != nil || time.Until(long.Deadline()) < 5*time.Second {
		t.Errorf("%v, %v, %v", brief.Err(), long.Err(), renewed.Err())
	}
	unlock(t, renewed)
	if _, _, err := locks[1].TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("beside the long one: %v", err)
	}
	unlock(t, long)
	_, w := lock(t, bg, locks[1], rlock.WaitAtMost(10*time.Second))
	unlock(t, w)
}

func TestForcedUnlocksAreOfOneSide(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 3, rlock.WithWatchdogTimeout(long), rlock.WithLogger(slog.New(slog.DiscardHandler)))
	actx, a := lock(t, bg, locks[0].RLocker())
	bctx, b := lock(t, bg, locks[1].RLocker())
	if forced, err := locks[2].ForceUnlock(bg); forced || err != nil {
		t.Errorf("of no writer: %v, %v", forced, err)
	}
	if forced, err := locks[2].ForceUnlockToken(bg, b.Token()); !forced || err != nil {
		t.Errorf("of one reader: %v, %v", forced, err)
	}
	testlock.Receive(t, "its context ends", bctx.Done())
	if actx.Err() != nil {
		t.Error("the other reader lost the lock, too")
	}
	w := begin(bg, locks[1])
	queue(t, locks[2], 1)
	if n, err := locks[2].ForceRUnlock(bg); n != 1 || err != nil {
		t.Errorf("of the readers: %v, %v", n, err)
	}
	hold := await(t, w)
	testlock.Receive(t, "its context ends", actx.Done())
	if n, err := locks[2].ForceRUnlock(bg); n != 0 || err != nil {
		t.Errorf("of no reader: %v, %v", n, err)
	}
	r := begin(bg, locks[2].RLocker())
	queue(t, locks[2], 1)
	if forced, err := locks[2].ForceUnlock(bg); !forced || err != nil {
		t.Errorf("of the writer: %v, %v", forced, err)
	}
	unlock(t, await(t, r).hold)
	testlock.Receive(t, "its context ends", hold.ctx.Done())
	for _, h := range []*rlock.Hold{a, b, hold.hold} {
		if err := h.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock of what was forced: %v", err)
		}
	}
	for _, token := range []int64{0, -1} {
		if _, err := locks[0].ForceUnlockToken(bg, token); err == nil {
			t.Errorf("ForceUnlockToken(%d)", token)
		}
	}
}

func TestWhatDescendsFromALostHoldGetsErrLost(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2, rlock.WithWatchdogTimeout(long), rlock.WithLogger(slog.New(slog.DiscardHandler)))
	for _, ctx := range []context.Context{bg, rlock.WithOwner(bg)} {
		held, hold := lock(t, ctx, locks[0])
		if forced, err := locks[1].ForceUnlock(bg); !forced || err != nil {
			t.Errorf("ForceUnlock: %v, %v", forced, err)
		}
		testlock.Receive(t, "its context ends", held.Done())
		again := ctx2(held)
		if ctx != bg {
			again = ctx
		}
		for _, l := range []rlock.Locker{locks[0], locks[0].RLocker()} {
			if _, _, err := l.Lock(again); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("under what was lost: %v", err)
			}
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		if ctx != bg { // the owner knows it now
			_, w := lock(t, ctx, locks[0])
			unlock(t, w)
		}
	}
}

func TestAMultiLockTakesEitherSide(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
	catalog, prices := rwlock.New(a, "catalog"), rwlock.New(a, "prices")
	both := multilock.New(catalog.RLocker(), prices, rlock.New(a, "job"))
	_, hold := lock(t, bg, both)
	if _, _, err := rwlock.New(b, "prices").TryRLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("beside the writer: %v", err)
	}
	_, r, err := rwlock.New(b, "catalog").TryRLock(bg)
	testlock.Must(t, err)
	unlock(t, r, hold)
	_, w, err := rwlock.New(b, "catalog").TryLock(bg)
	testlock.Must(t, err)
	if _, _, err := both.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("with a member taken: %v", err)
	}
	unlock(t, w)
	_, w, err = rwlock.New(b, "prices").TryLock(bg) // the other members were given back
	testlock.Must(t, err)
	unlock(t, w)
}

func TestACancelStormLeavesNothing(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 3)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			l := locks[i%len(locks)]
			for range 30 {
				ctx, cancel := context.WithTimeout(bg, time.Duration(rnd.IntN(3000))*time.Microsecond)
				var side rlock.Locker = l
				if rnd.IntN(3) > 0 {
					side = l.RLocker()
				}
				if _, hold, err := side.Lock(ctx); err == nil {
					time.Sleep(time.Duration(rnd.IntN(500)) * time.Microsecond)
					if err := hold.Unlock(bg); err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	testlock.Eventually(t, "nothing is left", func() bool {
		st := inspect(t, locks[0])
		return st.Writer == nil && len(st.Readers) == 0 && len(st.Queue) == 0
	})
	_, w := lock(t, bg, locks[0], rlock.WaitAtMost(testlock.Patience))
	unlock(t, w)
	testlock.Eventually(t, "one key is left", func() bool { return rdb.DBSize(bg).Val() == 1 })
	testlock.NoSubscriptions(t, rdb)
}

func TestAForgottenReaderIsReleasedAndOneWhoseContextIsKeptIsNot(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	ctx, _ := lock(t, bg, locks[0].RLocker())
	w := begin(bg, locks[1])
	queue(t, locks[0], 1)
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	waits(t, "a writer beside a reader whose context is kept", w)
	runtime.KeepAlive(ctx)
	ctx = nil
	testlock.Eventually(t, "it is released", func() bool {
		runtime.GC()
		return len(w) == 1
	})
	unlock(t, await(t, w).hold)
}

// TestWritersAndReadersOfManySessionsWaitAlike: none is starved by those that come all the time.
func TestNeitherSideStarvesTheOther(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 3)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	use := func(l rlock.Locker, goroutines int) {
		for range goroutines {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					_, hold, err := l.Lock(bg)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(200 * time.Microsecond)
					testlock.Must(t, hold.Unlock(bg))
				}
			})
		}
	}
	use(locks[0].RLocker(), 4) // always some that read
	use(locks[1].RLocker(), 4)
	for range 20 {
		_, w := lock(t, bg, locks[2], rlock.WaitAtMost(20*time.Second))
		unlock(t, w)
	}
	use(locks[0], 4) // and that write
	use(locks[1], 4)
	for range 20 {
		_, r := lock(t, bg, locks[2].RLocker(), rlock.WaitAtMost(20*time.Second))
		unlock(t, r)
	}
	close(stop)
	wg.Wait()
}

func TestTheUnlockOfALostHoldLeavesTheNextOneToItsSession(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 1)
	session, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	testlock.Must(t, err)
	l := rwlock.New(session, "x")
	_, first := lock(t, bg, l)
	forced, err := locks[0].ForceUnlock(bg)
	testlock.Must(t, err)
	if err := first.Extend(bg, time.Second); !forced || !errors.Is(err, rlock.ErrLost) {
		t.Errorf("of a lock that was forced: %v", err)
	}
	ctx, second := lock(t, bg, l)
	if err := first.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	time.Sleep(50 * time.Millisecond) // for what that does in the background
	testlock.Must(t, session.Close())
	if ctx.Err() == nil || !errors.Is(second.Err(), rlock.ErrClosed) || inspect(t, locks[0]).Writer != nil {
		t.Errorf("Close has left it: %v, %v, %+v", ctx.Err(), second.Err(), inspect(t, locks[0]))
	}
}

// The request that asks again comes too late, and says no more of the place.
func TestAWaiterThatGivesUpWhileItAsksAgainGivesUpItsPlace(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	lease := rlock.WithWatchdogTimeout(3 * time.Second) // a request is welcome for a second
	l := locksOf(t, proxy.Client(t), 1, lease, rlock.WithLiveness(30*time.Second))[0]
	other := locksOf(t, server.Client(t), 1, lease)[0]
	_, w := lock(t, bg, l) // so that it knows the clock
	unlock(t, w)
	_, hold := lock(t, bg, other)
	asked := make(chan struct{}, 8)
	acquires := 0
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Script() != permit.Scripts()["acquire"].Digest() {
			return faultproxy.Pass
		}
		if acquires++; acquires == 2 {
			asked <- struct{}{}
			time.Sleep(1500 * time.Millisecond)
		}
		return faultproxy.Pass
	})
	ctx, cancel := context.WithCancel(bg)
	waiting := begin(ctx, l)
	testlock.Receive(t, "it asks again when it listens", asked)
	cancel()
	if g := testlock.Receive(t, "the end of the wait", waiting); !errors.Is(g.err, context.Canceled) {
		t.Errorf("%v", g.err)
	}
	testlock.Eventually(t, "it has left the queue", func() bool { return len(inspect(t, other).Queue) == 0 })
	unlock(t, hold)
}

package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// Proves: read-write lock
func TestADeadReaderHoldsAWriterUpForItsLeaseAndTouchesNoOthers(t *testing.T) {
	simulated(t, 2, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		net := faultproxy.InMemory(t, wire.Dial)
		dying := locksOf(t, net.Client(t), 1)[0]
		dctx, dead := testlock.Lock(t, dying.RLocker(), bg)
		actx, alive := testlock.Lock(t, locks[0].RLocker(), bg)
		w := testlock.Join(bg, locks[1])
		net.BlackHole(true, true)
		<-dctx.Done()
		time.Sleep(2 * time.Minute) // the lease of the other reader is renewed
		n := len(testlock.Inspect(t, locks[0]).Holders)
		if n != 1 || actx.Err() != nil || alive.Err() != nil {
			t.Errorf("%d readers; the living one: %v, %v", n, actx.Err(), alive.Err())
		}
		testlock.Waiting(t, "a writer beside a reader that lives", w)
		testlock.Unlock(t, alive)
		hold := testlock.Granted(t, w)
		net.BlackHole(false, false)
		testlock.WantError(t, "the dead one's Unlock", dead.Unlock(bg), rlock.ErrLost)
		testlock.Settle()
		if st := testlock.Inspect(t, locks[0]); !st.Held || st.Shared || hold.Err() != nil {
			t.Errorf("the dead one's Unlock has ended another's hold: %+v", st)
		}
		testlock.Unlock(t, hold)
	})
}

// Proves: read-write lock
func TestAFixedLeaseOfAReaderNeitherEndsNorProlongsAnothers(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		_, long := testlock.Lock(t, locks[0].RLocker(), bg, rlock.WithLease(15*time.Second))
		ctx, brief := testlock.Lock(t, locks[0].RLocker(), bg, rlock.WithLease(3*time.Second))
		renewed := testlock.Take(t, locks[0].RLocker())
		if len(testlock.Inspect(t, locks[1]).Holders) != 3 {
			t.Error("they share an entry")
		}
		testlock.Receive(t, "the brief one's context ends", ctx.Done())
		if brief.Err() == nil || long.Err() != nil || renewed.Err() != nil ||
			time.Until(long.Deadline()) < 5*time.Second {
			t.Errorf("%v, %v, %v", brief.Err(), long.Err(), renewed.Err())
		}
		testlock.Unlock(t, renewed)
		refused(t, "beside the long one", locks[1], bg, rlock.ErrLocked)
		testlock.Unlock(t, long)
		_, w := testlock.Lock(t, locks[1], bg, rlock.WaitAtMost(10*time.Second))
		testlock.Unlock(t, w)
	})
}

// Proves: read-write lock
func TestForcedUnlocksAreOfOneSide(t *testing.T) {
	simulated(t, 3, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		actx, a := testlock.Lock(t, locks[0].RLocker(), bg)
		bctx, b := testlock.Lock(t, locks[1].RLocker(), bg)
		if forced, err := locks[2].ForceUnlock(bg); forced || err != nil {
			t.Errorf("of no writer: %v, %v", forced, err)
		}
		if forced, err := locks[2].ForceUnlockToken(bg, b.Token()); !forced || err != nil {
			t.Errorf("of one reader: %v, %v", forced, err)
		}
		testlock.Receive(t, "the end of its context", bctx.Done())
		if actx.Err() != nil {
			t.Error("the other reader lost the lock, too")
		}
		w := testlock.Join(bg, locks[1])
		if n, err := locks[2].ForceUnlockReaders(bg); n != 1 || err != nil {
			t.Errorf("of the readers: %v, %v", n, err)
		}
		hold := testlock.Receive(t, "a hold", w)
		testlock.Receive(t, "the end of its context", actx.Done())
		if n, err := locks[2].ForceUnlockReaders(bg); n != 0 || err != nil {
			t.Errorf("of no reader: %v, %v", n, err)
		}
		r := testlock.Join(bg, locks[2].RLocker())
		if forced, err := locks[2].ForceUnlock(bg); !forced || err != nil {
			t.Errorf("of the writer: %v, %v", forced, err)
		}
		testlock.Served(t, r)
		testlock.Receive(t, "the end of its context", hold.Ctx.Done())
		for _, h := range []*rlock.Hold{a, b, hold.Hold} {
			testlock.WantError(t, "Unlock of what was forced", h.Unlock(bg), rlock.ErrLost)
		}
	})
}

func TestAReaderBelowALostWriterGetsErrLost(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		held, hold := testlock.Lock(t, locks[0], bg)
		if forced, err := locks[1].ForceUnlock(bg); !forced || err != nil {
			t.Errorf("ForceUnlock: %v, %v", forced, err)
		}
		<-held.Done()
		_, _, err := locks[0].RLock(context.WithoutCancel(held))
		testlock.WantError(t, "under what was lost", err, rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAMultiLockTakesEitherSide(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		a, b := testlock.NewSession(t, wire.Client), testlock.NewSession(t, wire.Client)
		both := multilock.New(rwlock.New(a, "catalog").RLocker(), rwlock.New(a, "prices"),
			rlock.New(a, "job"))
		catalog, prices := rwlock.New(b, "catalog"), rwlock.New(b, "prices")
		hold := testlock.Take(t, both)
		_, _, err := prices.TryRLock(bg)
		testlock.WantError(t, "beside the writer", err, rlock.ErrLocked)
		_, r := testlock.TryLock(t, catalog.RLocker(), bg)
		testlock.Unlock(t, r, hold)
		_, w := testlock.TryLock(t, catalog, bg)
		_, _, err = both.TryLock(bg)
		testlock.WantError(t, "with a member taken", err, rlock.ErrLocked)
		testlock.Unlock(t, w)
		_, w = testlock.TryLock(t, prices, bg) // the other members were released
		testlock.Unlock(t, w)
	})
}

// The waiter's second request arrives too late, so its reply does not say whether the waiter has a place in
// the queue.
func TestAWaiterThatGivesUpWhileItAsksAgainGivesUpItsPlace(t *testing.T) {
	lease := rlock.WithWatchdogTimeout(3 * time.Second) // a request is void after a second
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		l, other := locks[0], locksOf(t, faultproxy.InMemory(t, wire.Dial).Client(t), 1)[0]
		testlock.Works(t, l) // so that its session knows the clock
		hold := testlock.Take(t, other)
		acquires := 0
		wire.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if testlock.Script(r.Script()) == "acquire" {
				if acquires++; acquires == 2 {
					time.Sleep(1500 * time.Millisecond)
				}
			}
			return faultproxy.Pass
		})
		ctx, cancel := context.WithCancel(bg)
		waiting := testlock.Join(ctx, l)
		if acquires != 2 {
			t.Errorf("it asked %d times", acquires)
		}
		cancel()
		testlock.WantError(t, "Lock", (<-waiting).Err, context.Canceled)
		time.Sleep(2 * time.Second)
		if st := testlock.Inspect(t, other); len(st.Queue) != 0 {
			t.Errorf("it has not left the queue: %+v", st)
		}
		testlock.Unlock(t, hold)
	}, lease, rlock.WithWaiterTimeout(30*time.Second))
}

// New readers and writers come all the time. Neither side may have to wait forever.
// Proves: read-write lock
func TestNeitherSideStarvesTheOther(t *testing.T) {
	simulated(t, 3, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
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
						if err := hold.Unlock(bg); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		use(locks[0].RLocker(), 4) // so that there are always readers
		use(locks[1].RLocker(), 4)
		for range 20 {
			testlock.Works(t, locks[2])
		}
		use(locks[0], 4) // and always writers
		use(locks[1], 4)
		for range 20 {
			testlock.Works(t, locks[2].RLocker())
		}
		close(stop)
		wg.Wait()
	})
}

// A reader has a long lease, while readers with shorter leases renew and unlock. The keys must live for the
// long lease.
func TestALongLeaseKeepsItsDataWhileOthersRenewTheirs(t *testing.T) {
	simulated(t, 3, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		rdb := wire.Client
		first := testlock.Take(t, locks[2].RLocker())
		short := testlock.Take(t, locks[1].RLocker())
		_, long := testlock.Lock(t, locks[0].RLocker(), bg, rlock.WithLease(time.Hour))
		testlock.Renewed(t, short, time.Second)
		testlock.Unlock(t, short)
		for _, k := range []string{key, key + ":h"} {
			if left := rdb.PTTL(bg, k).Val(); left < 59*time.Minute {
				t.Errorf("%s is kept for %v", k, left)
			}
		}
		testlock.Unlock(t, long, first)
	})
}

// The downgrade of a writer is refused at first, and must be sent again. Otherwise readers of other sessions
// would have to wait for the last reader of this session.
func TestAWriterThatGoesOnAsAReaderTellsRedisAlsoAfterARefusal(t *testing.T) {
	simulated(t, 2, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, writes := testlock.Lock(t, locks[0], bg)
		_, reads := testlock.Lock(t, locks[0].RLocker(), ctx)
		wire.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		if writes.Unlock(bg) == nil {
			t.Error("no error")
		}
		time.Sleep(time.Second)
		wire.SetError("")
		time.Sleep(3 * time.Second)
		_, beside, err := locks[1].TryRLock(bg)
		testlock.Must(t, err)
		testlock.Unlock(t, beside, reads)
	})
}

package rwlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// Proves: read-write lock
func TestReadersShareAndAWriterExcludesAll(t *testing.T) {
	simulated(t, 3, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		a := testlock.Take(t, locks[0].RLocker())
		testlock.Settle() // leases that end at the same time have no order
		b := testlock.Take(t, locks[1].RLocker())
		if st := testlock.Inspect(t, locks[2]); !st.Shared || len(st.Holders) != 2 || st.Token != a.Token() {
			t.Errorf("%+v", st)
		}
		var locked *rlock.LockedError
		if _, _, err := locks[2].TryLock(bg); !errors.As(err, &locked) || locked.Holder == "" {
			t.Errorf("TryLock beside readers: %v", err)
		}
		testlock.Unlock(t, a)
		refused(t, "TryLock beside a reader", locks[2], bg, rlock.ErrLocked)
		testlock.Unlock(t, b)
		_, w := testlock.TryLock(t, locks[2], bg)
		st := testlock.Inspect(t, locks[0])
		if !st.Held || st.Shared || len(st.Holders) != 1 || st.Token != w.Token() {
			t.Errorf("%+v", st)
		}
		for _, l := range locks {
			refused(t, "TryRLock beside a writer", l.RLocker(), bg, rlock.ErrLocked)
		}
		testlock.Unlock(t, w)
	})
}

// Proves: read-write lock
func TestGoroutinesOfASessionReadUnderOneEntryAndAWriterWaitsForAll(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		a := testlock.Take(t, locks[0].RLocker())
		b := testlock.Take(t, locks[0].RLocker())
		if st := testlock.Inspect(t, locks[1]); !st.Shared || len(st.Holders) != 1 || a.Token() != b.Token() {
			t.Errorf("%+v", st)
		}
		w := testlock.Join(bg, locks[1])
		testlock.Unlock(t, a)
		testlock.Waiting(t, "a writer beside a reader", w)
		testlock.Unlock(t, b)
		testlock.Served(t, w)
	}, rlock.WithHandover(time.Hour))
}

// Proves: read-write lock
func TestATryJoinsItsSessionsReadersOnlyIfNoWriterWaits(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		a := testlock.Take(t, locks[0].RLocker())
		time.Sleep(time.Second) // after this time, a reader sends a request again
		_, b, err := locks[0].TryRLock(bg)
		testlock.Must(t, err)
		if st := testlock.Inspect(t, locks[1]); len(st.Holders) != 1 || a.Token() != b.Token() {
			t.Errorf("%+v", st)
		}
		w := testlock.Join(bg, locks[1])
		time.Sleep(time.Second)
		refused(t, "a try behind a writer", locks[0].RLocker(), bg, rlock.ErrLocked)
		testlock.Unlock(t, a)
		testlock.Waiting(t, "a writer beside a reader", w)
		testlock.Unlock(t, b)
		testlock.Served(t, w)
	})
}

// Proves: read-write lock
func TestReadersThatComeLaterWaitBehindAWriterAndAreLetInTogether(t *testing.T) {
	simulated(t, 5, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		first := testlock.Take(t, locks[0].RLocker())
		w := testlock.Join(bg, locks[1])
		var readers []<-chan testlock.Grant
		for _, l := range locks[2:] {
			readers = append(readers, testlock.Join(bg, l.RLocker()))
		}
		own := testlock.Join(bg, locks[0].RLocker()) // of the session that already reads
		last := testlock.Join(bg, locks[1])
		testlock.Waiting(t, "a reader behind a writer", append(readers, own)...)
		testlock.Unlock(t, first)
		hold := testlock.Granted(t, w)
		testlock.Waiting(t, "a reader beside a writer", append(readers, own)...)
		testlock.Unlock(t, hold)
		var holds []*rlock.Hold
		for _, r := range append(readers, own) { // all get it before any of them unlocks
			holds = append(holds, testlock.Granted(t, r))
		}
		testlock.Waiting(t, "a writer beside readers", last)
		testlock.Unlock(t, holds...)
		testlock.Served(t, last)
	}, rlock.WithHandover(0))
}

// A reader that calls a writer with an outer context waits for itself.
func TestALongWaitForTheSessionsOwnReaderIsLogged(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		log := new(testlock.Log)
		s := testlock.NewSession(t, w.Client, rlock.WithLogger(log.Logger()))
		m := rwlock.New(s, "x")
		hold := testlock.Take(t, m.RLocker())
		writes := testlock.Go(bg, m)
		time.Sleep(11 * time.Second)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, writes))
		testlock.Must(t, s.Close())
		if n := log.Count("have waited for 10 s for a holder of this same session"); n != 1 {
			t.Errorf("logged %d times: %v", n, log)
		}
	})
}

// Proves: read-write lock
func TestAReaderCannotBecomeTheWriter(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, r := testlock.Lock(t, locks[0].RLocker(), bg)
		for _, lock := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){
			locks[0].Lock, locks[0].TryLock,
		} {
			if _, _, err := lock(ctx); !errors.Is(err, rwlock.ErrUpgrade) {
				t.Errorf("upgrade: %v", err)
			}
		}
		if _, _, err := locks[0].TryLock(bg); !errors.Is(err, rlock.ErrLocked) ||
			!strings.Contains(err.Error(), "a reader cannot become the writer") {
			t.Errorf("with the context from outside: %v", err)
		}
		testlock.Unlock(t, r)
		// The context has the hold of the former reader, which does not count any more.
		_, w := testlock.Lock(t, locks[0], context.WithoutCancel(ctx))
		testlock.Unlock(t, w)
	})
}

// The race detector finds memory that two of the calls write.
func TestCallsThatCannotBecomeTheWriterAreRefusedAtTheSameTime(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		for range 20 {
			ctx, reader := testlock.Lock(t, locks[0].RLocker(), bg)
			start := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					<-start
					if _, _, err := locks[0].TryLock(ctx); !errors.Is(err, rwlock.ErrUpgrade) {
						t.Errorf("upgrade: %v", err)
					}
				})
			}
			close(start)
			wg.Wait()
			testlock.Unlock(t, reader)
		}
	})
}

// Proves: read-write lock
func TestAWriterGoesOnAsAReader(t *testing.T) {
	simulated(t, 3, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, w := testlock.Lock(t, locks[0], bg)
		rctx, r := testlock.Lock(t, locks[0].RLocker(), ctx)
		if r.Token() != w.Token() {
			t.Errorf("tokens %d and %d", w.Token(), r.Token())
		}
		writer := testlock.Join(bg, locks[1])
		reader := testlock.Join(bg, locks[2].RLocker())
		testlock.Unlock(t, w)
		if ctx.Err() == nil || rctx.Err() != nil || r.Err() != nil {
			t.Errorf("after the writer's Unlock: %v, %v, %v", ctx.Err(), rctx.Err(), r.Err())
		}
		testlock.Waiting(t, "a writer beside what became a reader", writer)
		if st := testlock.Inspect(t, locks[0]); !st.Shared || len(st.Holders) != 1 || st.Token != r.Token() {
			t.Errorf("%+v", st)
		}
		refused(t, "it is no writer any more", locks[0], context.WithoutCancel(rctx), rwlock.ErrUpgrade)
		testlock.Unlock(t, r)
		if !errors.Is(context.Cause(rctx), rlock.ErrNotHeld) {
			t.Errorf("the reader's context after its Unlock: %v", context.Cause(rctx))
		}
		hold := testlock.Granted(t, writer)
		if hold.Token() <= r.Token() {
			t.Error("the token does not grow")
		}
		testlock.Unlock(t, hold)
		testlock.Served(t, reader)
	})
}

// Proves: read-write lock
func TestReadersJoinWhatBecameAReader(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, w := testlock.Lock(t, locks[0], bg)
		_, r := testlock.Lock(t, locks[0].RLocker(), ctx)
		testlock.Unlock(t, w)
		_, other, err := locks[1].TryRLock(bg)
		testlock.Must(t, err)
		_, own, err := locks[0].TryRLock(bg)
		testlock.Must(t, err)
		testlock.Unlock(t, r, other, own)
		_, again, err := locks[1].TryLock(bg)
		testlock.Must(t, err)
		testlock.Unlock(t, again)
	})
}

// Proves: read-write lock
func TestAWriterReentersAsEitherAndItsHoldsEndInAnyOrder(t *testing.T) {
	simulated(t, 2, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, a := testlock.Lock(t, locks[0], bg)
		ctx2, b := testlock.Lock(t, locks[0], ctx)
		_, r := testlock.Lock(t, locks[0].RLocker(), ctx2)
		testlock.Unlock(t, a)
		if st := testlock.Inspect(t, locks[1]); !st.Held || st.Shared || b.Err() != nil {
			t.Errorf("%+v, %v", st, b.Err())
		}
		testlock.Unlock(t, b)
		if st := testlock.Inspect(t, locks[1]); !st.Shared || len(st.Holders) != 1 {
			t.Errorf("%+v", st)
		}
		testlock.Unlock(t, r)
	})
}

// Proves: read-write lock
func TestGoroutinesThatNestInOneHoldExcludeEachOther(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, w := testlock.Lock(t, locks[0], bg)
		_, a := testlock.Lock(t, locks[0].RLocker(), ctx)
		_, b := testlock.Lock(t, locks[0].RLocker(), ctx)
		nested := testlock.Join(ctx, locks[0])
		refused(t, "beside those that read", locks[0], ctx, rlock.ErrLocked)
		testlock.Unlock(t, a)
		testlock.Waiting(t, "one that writes beside one that reads", nested)
		testlock.Unlock(t, b)
		hold := testlock.Granted(t, nested)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, _, err := locks[0].RLock(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that reads beside one that writes: %v", err)
		}
		other := testlock.Join(ctx, locks[0])
		time.Sleep(10 * time.Millisecond)
		testlock.Waiting(t, "one that writes beside one that writes", other)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, other), w)
	})
}

// A reader that is nested in a writer may write only if no other reader is nested beside it. While it writes,
// no other goroutine reads. Proves: read-write lock
func TestAReaderBelowAWriterWritesOnlyWithoutOtherReaders(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, w := testlock.Lock(t, locks[0], bg)
		ctxA, a := testlock.Lock(t, locks[0].RLocker(), ctx)
		ctxB, b := testlock.Lock(t, locks[0].RLocker(), ctx)
		_, below := testlock.Lock(t, locks[0].RLocker(), ctxB)
		for _, reader := range []context.Context{ctxA, ctxB} {
			_, hold, err := locks[0].Lock(reader, rlock.WaitAtMost(time.Second))
			testlock.WantError(t, "a writer beside a reader", err, rwlock.ErrUpgrade)
			_ = hold.Unlock(bg)
		}
		testlock.Unlock(t, b, below)
		_, again := testlock.Lock(t, locks[0], ctxA)
		refused(t, "a reader beside a nested writer", locks[0].RLocker(), ctx, rlock.ErrLocked)
		writer := testlock.Join(ctxA, locks[0])
		testlock.Waiting(t, "a writer beside a nested writer", writer)
		testlock.Unlock(t, again)
		again = testlock.Granted(t, writer)
		reader := testlock.Join(ctx, locks[0].RLocker())
		testlock.Waiting(t, "a reader beside a nested writer", reader)
		testlock.Unlock(t, again)
		testlock.Served(t, reader)
		testlock.Unlock(t, a, w)
		isFree(t, locks[0])
	})
}

// The reader has all permits until the time of HoldAtLeast has passed, but no writer is left.
// Proves: read-write lock
func TestAReaderWhoseWriterHasEndedCannotWriteDuringHoldAtLeast(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx, w := testlock.Lock(t, locks[0], bg, rlock.HoldAtLeast(20*time.Second))
		rctx, r := testlock.Lock(t, locks[0].RLocker(), ctx)
		testlock.Unlock(t, w)
		refused(t, "upgrade", locks[0], rctx, rwlock.ErrUpgrade)
		testlock.Unlock(t, r)
	})
}

// Proves: read-write lock
func TestOneOwnerReentersWithoutTheContext(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		ctx := rlock.WithOwner(bg)
		_, w := testlock.Lock(t, locks[0], ctx)
		_, again := testlock.Lock(t, locks[0], ctx)
		_, r := testlock.Lock(t, locks[0].RLocker(), ctx)
		testlock.Unlock(t, w, again, r)
		_, r = testlock.Lock(t, locks[0].RLocker(), ctx)
		if _, _, err := locks[0].Lock(ctx); !errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("upgrade: %v", err)
		}
		testlock.Unlock(t, r)
	})
}

// Proves: read-write lock
func TestTheContextOfWhatBecameAReaderEndsWithWhatTheWriterWasGiven(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		// The context ends before the writer's Unlock, or after it.
		for _, first := range []bool{true, false} {
			why := errors.New("enough")
			given, cancel := context.WithCancelCause(bg)
			ctx, w := testlock.Lock(t, locks[0], given)
			rctx, r := testlock.Lock(t, locks[0].RLocker(), ctx)
			if first {
				cancel(why)
				testlock.Receive(t, "the end of the context", rctx.Done())
				testlock.Unlock(t, w)
			} else {
				testlock.Unlock(t, w)
				cancel(why)
				testlock.Receive(t, "the end of the context", rctx.Done())
			}
			if !errors.Is(context.Cause(rctx), why) || !errors.Is(context.Cause(rctx), context.Canceled) ||
				r.Err() != nil {
				t.Errorf("%v, %v", context.Cause(rctx), r.Err())
			}
			testlock.Unlock(t, r)
		}
	})
}

func TestTheUnlockOfAnotherLockEndsTheContextOfANestedReader(t *testing.T) {
	for name, newLocker := range map[string]func(*rlock.Session) rlock.Locker{
		"rlock":    func(s *rlock.Session) rlock.Locker { return rlock.New(s, "y") },
		"redisson": func(s *rlock.Session) rlock.Locker { return redisson.New(s, "y") },
		"RedLock":  func(s *rlock.Session) rlock.Locker { return testlock.RedLock("y", s) },
		"MultiLock": func(s *rlock.Session) rlock.Locker {
			return multilock.New(rlock.New(s, "y"), rlock.New(s, "z"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				s := testlock.NewSession(t, w.Client)
				m := rwlock.New(s, "x")
				ctx, writer := testlock.Lock(t, m, bg)
				between, other := testlock.Lock(t, newLocker(s), ctx)
				rctx, reader := testlock.Lock(t, m.RLocker(), between)
				testlock.Unlock(t, other)
				synctest.Wait()
				if cause := context.Cause(rctx); !errors.Is(cause, rlock.ErrNotHeld) {
					t.Errorf("the cause is %v", cause)
				}
				testlock.Unlock(t, reader, writer)
			})
		})
	}
}

// The writer is a member of a MultiLock, so the Unlock of the MultiLock is an Unlock of the outer hold.
func TestTheUnlockOfAMultiLockDoesNotEndTheContextOfAReaderThatNestsInAMember(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		m := rwlock.New(s, "x")
		ctx, hold := testlock.Lock(t, multilock.New(m, rlock.New(s, "y")), bg)
		rctx, reader := testlock.Lock(t, m.RLocker(), ctx)
		testlock.Unlock(t, hold)
		synctest.Wait()
		if cause := context.Cause(rctx); cause != nil {
			t.Errorf("the cause is %v", cause)
		}
		testlock.Unlock(t, reader)
	})
}

// The reader's context follows the caller's context until the writer's Unlock, and then the context that was
// given to the writer. So its deadline is the later one.
func TestTheContextOfANestedReaderHasADeadline(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		given, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		end, _ := given.Deadline()
		ctx, w := testlock.Lock(t, locks[0], given)
		short, cancelShort := context.WithTimeout(ctx, time.Second)
		defer cancelShort()
		for name, called := range map[string]context.Context{"the writer's": ctx, "a shorter one": short} {
			rctx, r := testlock.Lock(t, locks[0].RLocker(), called)
			if d, ok := rctx.Deadline(); !ok || !d.Equal(end) {
				t.Errorf("with %s: %v, %v, want %v", name, d, ok, end)
			}
			testlock.Unlock(t, r)
		}
		testlock.Unlock(t, w)
		ctx, w = testlock.Lock(t, locks[0], bg)
		short, cancelShort = context.WithTimeout(ctx, time.Second)
		defer cancelShort()
		rctx, r := testlock.Lock(t, locks[0].RLocker(), short)
		if d, ok := rctx.Deadline(); ok {
			t.Errorf("the reader may outlive its context, but has the deadline %v", d)
		}
		testlock.Unlock(t, r, w)
	})
}

func TestAWriterAndItsReaderUnlockAtOnce(t *testing.T) {
	simulated(t, 1, func(t *testing.T, _ *testlock.Wire, locks []*rwlock.RWMutex) {
		for range 200 {
			ctx, w := testlock.Lock(t, locks[0], bg)
			_, r := testlock.Lock(t, locks[0].RLocker(), ctx)
			done := make(chan error, 1)
			go func() { done <- r.Unlock(bg) }()
			testlock.Unlock(t, w)
			testlock.Must(t, testlock.Receive(t, "the reader's Unlock", done))
		}
		isFree(t, locks[0])
	})
}

func TestAWriterThatGoesOnAsAReaderLeavesAllTaken(t *testing.T) {
	simulated(t, 2, func(t *testing.T, w *testlock.Wire, locks []*rwlock.RWMutex) {
		start := time.Now()
		ctx, writer := testlock.Lock(t, locks[0], bg, rlock.HoldAtLeast(20*time.Second))
		_, reader := testlock.Lock(t, locks[0].RLocker(), ctx)
		testlock.Unlock(t, writer)
		_, _, err := locks[1].RLocker().TryLock(bg)
		testlock.WantError(t, "another one that reads, beside the reader", err, rlock.ErrLocked)
		testlock.Unlock(t, reader)
		next := testlock.Take(t, locks[1].RLocker())
		if took := time.Since(start); took < 20*time.Second {
			t.Errorf("another one reads after %v", took)
		}
		testlock.Unlock(t, next)
	})
}

// Nothing else happens when the time of HoldAtLeast has passed, so a timer must let the other reader in.
func TestAReaderLetsOthersReadWhenTheTimeOfItsWriterHasPassed(t *testing.T) {
	simulated(t, 2, func(t *testing.T, w *testlock.Wire, locks []*rwlock.RWMutex) {
		start := time.Now()
		ctx, writer := testlock.Lock(t, locks[0], bg, rlock.HoldAtLeast(20*time.Second))
		_, reader := testlock.Lock(t, locks[0].RLocker(), ctx)
		testlock.Unlock(t, writer)
		_, other := testlock.Lock(t, locks[1].RLocker(), bg, rlock.WaitAtMost(time.Minute))
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("another one reads after %v", took)
		}
		testlock.Unlock(t, reader, other)
	})
}

// A session keeps the permits of a writer while no goroutine has them. A reader of this session must not have
// to wait for them, and the other way round.
func TestWhatIsKeptMakesRoomForItsOwnSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client, rlock.WithLinger(time.Hour))
		m := rwlock.New(s, "x")
		sides := map[string]rlock.Locker{"write": m, "read": m.RLocker()}
		for _, side := range []string{"write", "write", "read", "write", "read", "read", "write"} {
			start := time.Now()
			_, hold := testlock.TryLock(t, sides[side], bg)
			testlock.Unlock(t, hold)
			_, hold = testlock.Lock(t, sides[side], bg)
			testlock.Keep(t, hold)
			testlock.Unlock(t, hold)
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("to %s: %v", side, took)
			}
			time.Sleep(time.Second)
		}
		if st := testlock.Inspect(t, m); !st.Held || st.Shared || !st.Lingers {
			t.Errorf("at last: %+v", st)
		}
		_, one := testlock.TryLock(t, m.RLocker(), bg)
		beside := rwlock.New(testlock.NewSession(t, w.Client), "x").RLocker()
		_, other := testlock.TryLock(t, beside, bg)
		testlock.Unlock(t, one, other)
	})
}

// Redis sends no message if a goroutine of the session itself wants the lock, so the session must notice
// this.
func TestReadersDoNotKeepAWriterOfTheirSessionWaitingThoughTheyLinger(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rwlock.New(testlock.NewSession(t, w.Client, rlock.WithLinger(time.Hour)), "x")
		for range 2 { // after the first round, the session has a subscription
			_, hold := testlock.Lock(t, m.RLocker(), bg)
			testlock.Unlock(t, hold)
			time.Sleep(time.Second)
		}
		_, first := testlock.Lock(t, m.RLocker(), bg)
		writer := testlock.Go(bg, m)
		time.Sleep(time.Second)
		later := testlock.Go(bg, m.RLocker())
		time.Sleep(time.Second)
		testlock.Unlock(t, first)
		select {
		case g := <-later:
			t.Errorf("a later reader has it first: %v", g.Err)
			testlock.Unlock(t, g.Hold)
			testlock.Served(t, writer)
		case g := <-writer:
			testlock.Must(t, g.Err)
			testlock.Unlock(t, g.Hold)
			testlock.Served(t, later)
		}
	})
}

// A writer's TryLock waits for the release that was in flight when it began, even if another reader's release
// begins later and ends earlier.
func TestATryWaitsForTheReleaseThatWasUnderWay(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ctx := context.Background()
		client := w.Net.Client(t)
		var slowly atomic.Bool
		client.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
			for _, c := range cmds {
				if len(c.Args()) > 1 && c.Args()[0] == "evalsha" &&
					testlock.Script(c.Args()[1].(string)) == "release" && slowly.CompareAndSwap(true, false) {
					time.Sleep(100 * time.Millisecond) // delays this release
				}
			}
			return next()
		}))
		s := testlock.NewSession(t, client)
		m := rwlock.New(s, "x")
		_, r0, err := m.RLock(ctx)
		testlock.Must(t, err)
		testlock.Must(t, r0.Unlock(ctx)) // warm
		time.Sleep(time.Minute)
		_, slow, err := m.RLock(ctx, rlock.WithLease(30*time.Second))
		testlock.Must(t, err)
		slowly.Store(true)
		go func() { _ = slow.Unlock(ctx) }()
		time.Sleep(10 * time.Millisecond)
		if slowly.Load() {
			t.Fatal("no release is under way")
		}
		start := time.Now()
		got := make(chan error, 1)
		go func() {
			_, hold, err := m.TryLock(ctx)
			got <- err
			if err == nil {
				_ = hold.Unlock(ctx)
			}
		}()
		time.Sleep(10 * time.Millisecond)
		_, r2, err := m.RLock(ctx, rlock.WithLease(31*time.Second))
		testlock.Must(t, err)
		testlock.Must(t, r2.Unlock(ctx))
		if err := <-got; err != nil {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(time.Second)
	})
}

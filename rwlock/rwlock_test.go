package rwlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

func TestReadersShareAndAWriterExcludesAll(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 3)
	_, a := lock(t, bg, locks[0].RLocker())
	_, b := lock(t, bg, locks[1].RLocker())
	if st := inspect(t, locks[2]); st.Writer != nil || len(st.Readers) != 2 || st.Readers[0].Token != a.Token() {
		t.Errorf("%+v", st)
	}
	var locked *rlock.LockedError
	if _, _, err := locks[2].TryLock(bg); !errors.As(err, &locked) || locked.Holder == "" {
		t.Errorf("TryLock beside readers: %v", err)
	}
	unlock(t, a)
	if _, _, err := locks[2].TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock beside a reader: %v", err)
	}
	unlock(t, b)
	_, w, err := locks[2].TryLock(bg)
	testlock.Must(t, err)
	if st := inspect(t, locks[0]); st.Writer == nil || len(st.Readers) != 0 || st.Writer.Token != w.Token() {
		t.Errorf("%+v", st)
	}
	for _, l := range locks {
		if _, _, err := l.TryRLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryRLock beside a writer: %v", err)
		}
	}
	unlock(t, w)
}

func TestGoroutinesOfASessionReadUnderOneEntryAndAWriterWaitsForAll(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2, rlock.WithStreak(time.Hour))
	_, a := lock(t, bg, locks[0].RLocker())
	_, b := lock(t, bg, locks[0].RLocker())
	if st := inspect(t, locks[1]); len(st.Readers) != 1 || a.Token() != b.Token() {
		t.Errorf("%+v", st)
	}
	w := begin(bg, locks[1])
	queue(t, locks[0], 1)
	unlock(t, a)
	time.Sleep(20 * time.Millisecond)
	waits(t, "a writer beside a reader", w)
	unlock(t, b)
	unlock(t, await(t, w).hold)
}

func TestReadersThatComeLaterWaitBehindAWriterAndAreLetInTogether(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 5, rlock.WithStreak(0))
	_, first := lock(t, bg, locks[0].RLocker())
	w := begin(bg, locks[1])
	queue(t, locks[0], 1)
	var readers []<-chan got
	for i, l := range locks[2:] {
		readers = append(readers, begin(bg, l.RLocker()))
		queue(t, locks[0], i+2)
	}
	own := begin(bg, locks[0].RLocker()) // of the session that reads already
	queue(t, locks[0], 5)
	last := begin(bg, locks[1])
	time.Sleep(20 * time.Millisecond)
	for _, r := range append(readers, own) {
		waits(t, "a reader behind a writer", r)
	}
	unlock(t, first)
	hold := await(t, w).hold
	for _, r := range append(readers, own) {
		waits(t, "a reader beside a writer", r)
	}
	unlock(t, hold)
	var holds []*rlock.Hold
	for _, r := range append(readers, own) { // all, before any of them unlocks
		holds = append(holds, await(t, r).hold)
	}
	waits(t, "a writer beside readers", last)
	unlock(t, holds...)
	unlock(t, await(t, last).hold)
}

func TestAReaderCannotBecomeTheWriter(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1)
	ctx, r := lock(t, bg, locks[0].RLocker())
	for _, lock := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){locks[0].Lock, locks[0].TryLock} {
		if _, _, err := lock(ctx); !errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("upgrade: %v", err)
		}
	}
	unlock(t, r)
	_, w := lock(t, ctx2(ctx), locks[0]) // under the context of what is over, which counts no more
	unlock(t, w)
}

// ctx2 has the values of a context without its end.
func ctx2(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func TestAWriterGoesOnAsAReader(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 3)
	ctx, w := lock(t, bg, locks[0])
	rctx, r := lock(t, ctx, locks[0].RLocker())
	if r.Token() != w.Token() {
		t.Errorf("tokens %d and %d", w.Token(), r.Token())
	}
	writer := begin(bg, locks[1])
	queue(t, locks[0], 1)
	reader := begin(bg, locks[2].RLocker())
	queue(t, locks[0], 2)
	unlock(t, w)
	time.Sleep(20 * time.Millisecond)
	if ctx.Err() == nil || rctx.Err() != nil || r.Err() != nil {
		t.Errorf("after the writer's Unlock: %v, %v, %v", ctx.Err(), rctx.Err(), r.Err())
	}
	waits(t, "a writer beside what became a reader", writer)
	if st := inspect(t, locks[0]); st.Writer != nil || len(st.Readers) != 1 || st.Readers[0].Token != r.Token() {
		t.Errorf("%+v", st)
	}
	if _, _, err := locks[0].TryLock(ctx2(rctx)); !errors.Is(err, rwlock.ErrUpgrade) {
		t.Errorf("it is no writer any more: %v", err)
	}
	unlock(t, r)
	if !errors.Is(context.Cause(rctx), rlock.ErrNotHeld) {
		t.Errorf("the reader's context after its Unlock: %v", context.Cause(rctx))
	}
	hold := await(t, writer).hold
	if hold.Token() <= r.Token() {
		t.Error("the token does not grow")
	}
	unlock(t, hold)
	unlock(t, await(t, reader).hold)
}

func TestReadersJoinWhatBecameAReader(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2)
	ctx, w := lock(t, bg, locks[0])
	_, r := lock(t, ctx, locks[0].RLocker())
	unlock(t, w)
	_, other, err := locks[1].TryRLock(bg)
	testlock.Must(t, err)
	_, own, err := locks[0].TryRLock(bg)
	testlock.Must(t, err)
	unlock(t, r, other, own)
	_, again, err := locks[1].TryLock(bg)
	testlock.Must(t, err)
	unlock(t, again)
}

func TestEachSideReentersAndItsHoldsEndInAnyOrder(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 2)
	ctx, a := lock(t, bg, locks[0])
	ctx2, b := lock(t, ctx, locks[0])
	_, r := lock(t, ctx2, locks[0].RLocker())
	unlock(t, a)
	if st := inspect(t, locks[1]); st.Writer == nil || b.Err() != nil {
		t.Errorf("%+v, %v", st, b.Err())
	}
	unlock(t, b)
	if st := inspect(t, locks[1]); st.Writer != nil || len(st.Readers) != 1 {
		t.Errorf("%+v", st)
	}
	unlock(t, r)

	ctx, a = lock(t, bg, locks[0].RLocker())
	_, b = lock(t, ctx, locks[0].RLocker())
	unlock(t, a)
	if _, _, err := locks[1].TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("one read hold is left: %v", err)
	}
	unlock(t, b)
	_, w, err := locks[1].TryLock(bg)
	testlock.Must(t, err)
	unlock(t, w)
}

func TestGoroutinesThatNestInOneHoldExcludeEachOther(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1)
	ctx, w := lock(t, bg, locks[0])
	_, a := lock(t, ctx, locks[0].RLocker())
	_, b := lock(t, ctx, locks[0].RLocker())
	nested := begin(ctx, locks[0])
	if _, _, err := locks[0].TryLock(ctx); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("beside those that read: %v", err)
	}
	unlock(t, a)
	waits(t, "one that writes beside one that reads", nested)
	unlock(t, b)
	hold := await(t, nested).hold
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, _, err := locks[0].RLock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that reads beside one that writes: %v", err)
	}
	other := begin(ctx, locks[0])
	time.Sleep(10 * time.Millisecond)
	waits(t, "one that writes beside one that writes", other)
	unlock(t, hold)
	unlock(t, await(t, other).hold, w)
}

func TestOneOwnerReentersWithoutTheContext(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1)
	ctx := rlock.WithOwner(bg)
	_, w := lock(t, ctx, locks[0])
	_, again := lock(t, ctx, locks[0])
	_, r := lock(t, ctx, locks[0].RLocker())
	unlock(t, w, again, r)
	_, r = lock(t, ctx, locks[0].RLocker())
	if _, _, err := locks[0].Lock(ctx); !errors.Is(err, rwlock.ErrUpgrade) {
		t.Errorf("upgrade: %v", err)
	}
	unlock(t, r)
}

func TestNobodyIsBesideAWriterUnderLoad(t *testing.T) {
	t.Parallel()
	const sessions, goroutines, each = 4, 4, 60
	_, locks := open(t, sessions)
	var readers, writers, reads, writes atomic.Int64
	var last atomic.Int64 // token of a writer
	var wg sync.WaitGroup
	for i, l := range locks {
		for g := range goroutines {
			wg.Go(func() {
				for n := range each {
					if (n+i+g)%5 == 0 {
						ctx, hold := lock(t, bg, l)
						if writers.Add(1) != 1 || readers.Load() != 0 {
							t.Error("somebody is beside a writer")
						}
						if before := last.Swap(hold.Token()); before >= hold.Token() {
							t.Errorf("token %d behind %d", hold.Token(), before)
						}
						if n%2 == 0 { // goes on as a reader
							_, r := lock(t, ctx, l.RLocker())
							writers.Add(-1)
							readers.Add(1)
							unlock(t, hold)
							readers.Add(-1)
							unlock(t, r)
						} else {
							writers.Add(-1)
							unlock(t, hold)
						}
						writes.Add(1)
						continue
					}
					_, hold := lock(t, bg, l.RLocker())
					readers.Add(1)
					if writers.Load() != 0 {
						t.Error("a reader is beside a writer")
					}
					if hold.Token() <= last.Load() && hold.Token() != last.Load() {
						t.Errorf("a reader's token %d is not above the writer's before it, %d", hold.Token(), last.Load())
					}
					readers.Add(-1)
					unlock(t, hold)
					reads.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if reads.Load()+writes.Load() != sessions*goroutines*each {
		t.Errorf("%d reads, %d writes", reads.Load(), writes.Load())
	}
	if st := inspect(t, locks[0]); st.Writer != nil || len(st.Readers) != 0 || len(st.Queue) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestTheContextOfWhatBecameAReaderEndsWithWhatTheWriterWasGiven(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1)
	for _, first := range []bool{true, false} { // the context ends before the writer's Unlock, or after it
		why := errors.New("enough")
		given, cancel := context.WithCancelCause(bg)
		ctx, w := lock(t, given, locks[0])
		rctx, r := lock(t, ctx, locks[0].RLocker())
		if first {
			cancel(why)
			testlock.Receive(t, "the end of the context", rctx.Done())
			unlock(t, w)
		} else {
			unlock(t, w)
			cancel(why)
			testlock.Receive(t, "the end of the context", rctx.Done())
		}
		if !errors.Is(context.Cause(rctx), why) || !errors.Is(context.Cause(rctx), context.Canceled) || r.Err() != nil {
			t.Errorf("%v, %v", context.Cause(rctx), r.Err())
		}
		unlock(t, r)
	}
}

func TestANestedHoldWithALongerLeaseMakesTheLeaseLonger(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1, rlock.WithWatchdogTimeout(time.Second))
	ctx, w := lock(t, bg, locks[0])
	_, nested := lock(t, ctx, locks[0].RLocker(), rlock.WithLease(time.Minute))
	if left := time.Until(nested.Deadline()); left < 50*time.Second {
		t.Errorf("%v are left", left)
	}
	unlock(t, nested, w)
}

func TestAWriterAndItsReaderUnlockAtOnce(t *testing.T) {
	t.Parallel()
	_, locks := open(t, 1)
	for range 200 {
		ctx, w := lock(t, bg, locks[0])
		_, r := lock(t, ctx, locks[0].RLocker())
		done := make(chan error, 1)
		go func() { done <- r.Unlock(bg) }()
		unlock(t, w)
		testlock.Must(t, testlock.Receive(t, "the reader's Unlock", done))
	}
	if st := inspect(t, locks[0]); st.Writer != nil || len(st.Readers) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAfterAnAsyncUnlockTheSessionCanTakeEitherSideAtOnce(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := rwlock.New(testlock.NewSession(t, server.Client(t), rlock.WithAsyncUnlock()), "x")
	cancelable, cancel := context.WithCancel(bg)
	defer cancel()
	for _, ctx := range []context.Context{bg, cancelable} {
		for range 20 {
			for _, side := range []rlock.Locker{l, l.RLocker(), l} {
				_, hold := testlock.TryLock(t, side, ctx)
				testlock.Unlock(t, hold)
			}
		}
	}
}

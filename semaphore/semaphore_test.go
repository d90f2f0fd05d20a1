package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func TestPermitsAreHeldAndGivenBack(t *testing.T) {
	t.Parallel()
	rdb, sems := open(t, 2, 3)
	ctx, a := acquire(t, sems[0], 2)
	_, b := acquire(t, sems[1], 1)
	st := inspect(t, sems[0])
	if st.Limit != 3 || st.Used != 3 || st.Available() != 0 || len(st.Holders) != 2 || len(st.Queue) != 0 {
		t.Errorf("%+v", st)
	}
	if a.Name() != "x" || a.Err() != nil || a.Token() == 0 || b.Token() <= a.Token() || time.Until(a.Deadline()) < 20*time.Second || ctx.Err() != nil {
		t.Errorf("%v %v %v %v", a.Name(), a.Err(), a.Token(), b.Token())
	}
	var full *semaphore.NotFreeError
	if _, hold, err := sems[1].TryAcquire(bg, 1); !errors.As(err, &full) || !errors.Is(err, rlock.ErrLocked) || hold != nil || full.Holder == "" {
		t.Errorf("TryAcquire of a full one: %v", err)
	}
	unlock(t, a)
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), rlock.ErrNotHeld) || !errors.Is(a.Unlock(bg), rlock.ErrNotHeld) {
		t.Errorf("after Unlock: %v", context.Cause(ctx))
	}
	_, c, err := sems[1].TryAcquire(bg, 2)
	testlock.Must(t, err)
	unlock(t, c)
	unlock(t, b)
	if keys := rdb.Keys(bg, "*").Val(); len(keys) != 1 || rdb.PTTL(bg, keys[0]).Val() > 61*time.Second {
		t.Errorf("what stays: %q", keys)
	}
}

// prompt counts the requests that are sent in their callers' goroutines.
type prompt struct{ n *atomic.Int64 }

func (prompt) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p prompt) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if fmt.Sprintf("%T", cmd) == "wire.promptRequest" {
			p.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (prompt) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestRequestsAreSentInTheirCallersGoroutines(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	var n atomic.Int64
	rdb.AddHook(prompt{&n})
	s := testlock.NewSession(t, rdb)
	sem, rw := semaphore.New(s, "x", 1), rwlock.New(s, "x")
	ctx := testlock.Bounded(t)
	testlock.Eventually(t, "a prompt server", func() bool { // which is not always prompt on a busy machine
		n.Store(0)
		_, hold, err := sem.Acquire(ctx, 1)
		testlock.Must(t, err)
		testlock.Must(t, hold.Unlock(ctx))
		_, hold, err = sem.TryAcquire(ctx, 1)
		testlock.Must(t, err)
		testlock.Must(t, hold.Unlock(ctx))
		held, write, err := rw.Lock(ctx)
		testlock.Must(t, err)
		_, read, err := rw.RLock(held)
		testlock.Must(t, err)
		testlock.Must(t, write.Unlock(ctx)) // which tells Redis that it goes on as a reader
		testlock.Must(t, read.Unlock(ctx))
		return n.Load() == 7
	})
}

func TestAcquireOfNoneSucceedsAndAsksNobody(t *testing.T) {
	t.Parallel()
	rdb, sems := open(t, 1, 1)
	ctx, hold := acquire(t, sems[0], 0)
	if hold.Err() != nil || hold.Name() != "x" || ctx.Err() != nil {
		t.Error(hold.Err())
	}
	unlock(t, hold)
	if !errors.Is(hold.Unlock(bg), rlock.ErrNotHeld) || ctx.Err() == nil || len(rdb.Keys(bg, "*").Val()) != 0 {
		t.Error("something was created, or does not end")
	}
}

func TestWaitersAreServedInTheirOrderAllOrNone(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 4, 2, rlock.WithStreak(0))
	_, a := acquire(t, sems[0], 1)
	_, b := acquire(t, sems[0], 1)
	both := begin(bg, sems[1], 2)
	queue(t, sems[0], 1)
	one := begin(bg, sems[2], 1) // behind the one that wants both
	queue(t, sems[0], 2)
	if _, _, err := sems[3].TryAcquire(bg, 1); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("somebody passes the queue: %v", err)
	}
	unlock(t, a)
	time.Sleep(20 * time.Millisecond)
	waits(t, "one that wants both, with one free", both)
	waits(t, "one behind it", one)
	unlock(t, b)
	hold := await(t, both)
	waits(t, "one behind it", one)
	unlock(t, hold)
	unlock(t, await(t, one))
}

func TestMoreThanTheLimitWaitsForMorePermitsAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 3, 1)
	two := begin(bg, sems[0], 2)
	queue(t, sems[0], 1)
	for range 3 { // each time behind the one that cannot be served
		_, hold := acquire(t, sems[1], 1)
		unlock(t, hold)
	}
	waits(t, "one that wants two of one", two)
	testlock.Must(t, sems[2].SetLimit(bg, 2))
	unlock(t, await(t, two))
}

func TestTheLimitChangesWhileHoldersAreOut(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 3)
	if set, err := sems[0].TrySetLimit(bg, 2); !set || err != nil {
		t.Errorf("TrySetLimit: %v, %v", set, err)
	}
	if set, err := sems[1].TrySetLimit(bg, 5); set || err != nil {
		t.Errorf("the second TrySetLimit: %v, %v", set, err)
	}
	_, a := acquire(t, sems[0], 2)
	if st := inspect(t, sems[0]); st.Limit != 2 {
		t.Errorf("%+v", st)
	}
	testlock.Must(t, sems[1].SetLimit(bg, 1))
	if st := inspect(t, sems[0]); st.Available() != -1 || a.Err() != nil {
		t.Errorf("%+v: available is %d", st, st.Available())
	}
	more := begin(bg, sems[1], 1)
	queue(t, sems[0], 1)
	testlock.Must(t, sems[0].SetLimit(bg, 3)) // wakes it
	unlock(t, await(t, more))
	unlock(t, a)
	for _, n := range []int{0, -1, semaphore.MaxLimit + 1} {
		if err := sems[0].SetLimit(bg, n); err == nil {
			t.Errorf("SetLimit(%d)", n)
		}
		if _, _, err := sems[0].Acquire(bg, n); err == nil && n != 0 {
			t.Errorf("Acquire(%d)", n)
		}
	}
}

func TestNobodyIsAboveTheLimitAndAllOfItIsUsed(t *testing.T) {
	t.Parallel()
	const limit, goroutines, each = 4, 8, 25
	_, sems := open(t, 4, limit)
	var inside, most, sum atomic.Int64
	var wg sync.WaitGroup
	for _, s := range sems {
		for range goroutines {
			wg.Go(func() {
				for i := range each {
					n := int64(1 + i%2)
					err := s.Do(bg, int(n), func(context.Context) error {
						now := inside.Add(n)
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						time.Sleep(200 * time.Microsecond)
						inside.Add(-n)
						sum.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if most.Load() != limit || sum.Load() != 4*goroutines*each {
		t.Errorf("%d at most of %d, %d times", most.Load(), limit, sum.Load())
	}
	if st := inspect(t, sems[0]); st.Used != 0 || len(st.Queue) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestACanceledWaiterLeavesNothing(t *testing.T) {
	t.Parallel()
	rdb, sems := open(t, 2, 1)
	_, hold := acquire(t, sems[0], 1)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(bg)
	var all []<-chan got
	for range 5 {
		all = append(all, begin(ctx, sems[1], 1))
	}
	testlock.Eventually(t, "they wait", func() bool { return len(inspect(t, sems[0]).Queue) > 0 }) // one for all, or for each that asked before it was known
	cancel(why)
	for _, done := range all {
		if g := testlock.Receive(t, "the end", done); !errors.Is(g.err, context.Canceled) || !errors.Is(g.err, why) || g.hold != nil {
			t.Errorf("%v", g.err)
		}
	}
	queue(t, sems[0], 0) // which may be given up in the background
	if _, _, err := sems[1].Acquire(bg, 1, rlock.WaitAtMost(time.Millisecond)); err == nil {
		t.Error("there was one free")
	}
	_, _, err := sems[1].Acquire(bg, 1, rlock.WaitAtMost(2*time.Second))
	if !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("WaitAtMost: %v", err)
	}
	unlock(t, hold)
	testlock.Eventually(t, "only the token stays", func() bool { return fmt.Sprint(rdb.Keys(bg, "*").Val()) == "[lockline:p:{x}:t]" })
}

func TestAWaitOfZeroTakesWhatIsFreeAndWaitsForNothing(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 1)
	_, hold := acquire(t, sems[0], 1, rlock.WaitAtMost(0))
	if _, _, err := sems[1].Acquire(bg, 1, rlock.WaitAtMost(0)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("of what is taken: %v", err)
	}
	if st := inspect(t, sems[0]); len(st.Queue) != 0 {
		t.Errorf("it stands in the queue: %+v", st)
	}
	unlock(t, hold)
}

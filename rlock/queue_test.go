package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const queueKey = lockKey + ":q"

// A session stands in the queue once, whoever of it waits.
func TestTheNextGoroutineInheritsThePlaceOfOneThatGivesUp(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	waits := make(testlock.Waits, 10)
	holder, ours, theirs := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb, rlock.WithObserver(waits)), testlock.NewSession(t, rdb)
	_, hold := testlock.Lock(t, rlock.New(holder, "x"), bg)
	stand := func(n int64) {
		t.Helper()
		testlock.Eventually(t, "in the queue", func() bool { return rdb.ZCard(bg, queueKey).Val() == n })
	}
	ctx, cancel := context.WithCancel(bg)
	first := testlock.Go(ctx, rlock.New(ours, "x"))
	stand(1)
	second := testlock.Go(bg, rlock.New(ours, "x"))
	testlock.Receive(t, "the first waits", waits)
	testlock.Receive(t, "the second waits", waits)
	other := testlock.Go(bg, rlock.New(theirs, "x"))
	stand(2)
	cancel()
	if got := testlock.Receive(t, "the first gives up", first); got.Err == nil {
		t.Fatal("it has the lock")
	}
	stand(2)
	testlock.Unlock(t, hold)
	mine := testlock.Granted(t, second)
	select {
	case <-other:
		t.Error("the other session, which came later, has it, too")
	default:
	}
	testlock.Unlock(t, mine)
	testlock.Unlock(t, testlock.Granted(t, other))
}

func TestTheLastGoroutineThatGivesUpLeavesTheQueue(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	m := rlock.New(testlock.NewSession(t, rdb), "x")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second))
			testlock.WantError(t, "a wait that ran out", err, rlock.ErrLocked)
		})
	}
	all.Wait()
	testlock.Eventually(t, "nobody stands in the queue", func() bool { return rdb.ZCard(bg, queueKey).Val() == 0 })
	testlock.Unlock(t, hold)
	testlock.Works(t, m)
}

// A session that always has goroutines waiting lets the queue have its turn.
func TestAnotherProcessHasItsTurnBesideACrowd(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	crowd := rlock.New(testlock.NewSession(t, rdb), "x")
	ctx, cancel := context.WithCancel(bg)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = testlock.Cycle(ctx, crowd)
			}
		})
	}
	lone := rlock.New(testlock.NewSession(t, rdb), "x")
	for range 20 {
		testlock.Must(t, testlock.Cycle(testlock.Bounded(t), lone))
	}
	cancel()
	all.Wait()
}

func TestAFixedLeaseIsNotInherited(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	m := rlock.New(testlock.NewSession(t, rdb), "x")
	ctx, cancel := context.WithCancel(bg)
	first := testlock.Go(ctx, m, rlock.WithLease(time.Minute))
	testlock.Eventually(t, "in the queue", func() bool { return rdb.ZCard(bg, queueKey).Val() == 1 })
	second := testlock.Go(bg, m)
	cancel()
	if got := testlock.Receive(t, "the first gives up", first); got.Err == nil {
		t.Fatal("it has the lock")
	}
	testlock.Eventually(t, "the second stands in the queue", func() bool { return rdb.ZCard(bg, queueKey).Val() == 1 })
	testlock.Unlock(t, hold)
	mine := testlock.Granted(t, second)
	if left := time.Until(mine.Deadline()); left > 31*time.Second {
		t.Errorf("it is leased for %v", left)
	}
	testlock.Unlock(t, mine)
}

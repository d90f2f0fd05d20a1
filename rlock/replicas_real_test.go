package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestWhatReplicasDoNotConfirmIsGivenBackAndFreeForOthers(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	frozen := server.StartReplica(t)
	rdb := server.Client(t)
	frozen.Freeze()
	for kind, newMutex := range confirmable {
		one := newMutex(testlock.NewSession(t, rdb, rlock.WithReplicas(1, confirmed)), "x")
		both := newMutex(testlock.NewSession(t, rdb, rlock.WithReplicas(2, time.Second)), "x") // the other one confirms
		testlock.Works(t, one)
		for _, take := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){both.Lock, both.TryLock} {
			_, hold, err := take(bg)
			var e *rlock.NotReplicatedError
			if !errors.Is(err, rlock.ErrNotReplicated) || !errors.As(err, &e) || e.Confirmed != 1 || e.Wanted != 2 || e.Name != "x" || hold != nil {
				t.Fatalf("%s with one of two replicas: %v, %+v", kind, err, e)
			}
			// Its lease is 30 s: only what was given back is free in time for this.
			testlock.Must(t, testlock.Cycle(bg, one, rlock.WaitAtMost(10*time.Second)))
		}
	}
	frozen.Thaw()
	both := rlock.New(testlock.NewSession(t, rdb, rlock.WithReplicas(2, confirmed)), "x")
	testlock.Eventually(t, "confirmed by both", func() bool {
		err := testlock.Cycle(bg, both)
		if err != nil && !errors.Is(err, rlock.ErrNotReplicated) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// The grant was written by another connection, so WAIT alone would confirm it at once.
func TestAFairLockThatWasHandedOverByMessageIsConfirmedByItsNewHolder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	replica := server.StartReplica(t)
	waits := make(testlock.Waits, 1)
	holder := fairlock.New(testlock.NewSession(t, server.Client(t)), "x")
	handOver := func(timeout time.Duration) error {
		s := testlock.NewSession(t, server.Client(t), rlock.WithReplicas(1, timeout), rlock.WithObserver(waits))
		_, hold := testlock.Lock(t, holder, bg)
		failed := make(chan error, 1)
		go func() { failed <- testlock.Cycle(bg, fairlock.New(s, "x")) }()
		testlock.Receive(t, "waiting", waits)
		testlock.Unlock(t, hold)
		return testlock.Receive(t, "the end of a cycle", failed)
	}
	testlock.Must(t, handOver(confirmed))
	replica.Freeze()
	testlock.WantError(t, "a hand-over that no replica knows of", handOver(refused), rlock.ErrNotReplicated)
	testlock.Must(t, testlock.Cycle(bg, holder, rlock.WaitAtMost(5*time.Second))) // less than the waiter's liveness
	replica.Thaw()
}

func TestReplicasConfirmEachMemberOfAMultiLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	replica := server.StartReplica(t)
	three := func(timeout time.Duration) *multilock.MultiLock {
		s := testlock.NewSession(t, server.Client(t), rlock.WithReplicas(1, timeout))
		return multilock.New(rlock.New(s, "a"), rlock.New(s, "b"), rlock.New(s, "c"))
	}
	testlock.Works(t, three(confirmed))
	replica.Freeze()
	var e *rlock.NotReplicatedError
	if _, _, err := three(refused).Lock(bg); !errors.As(err, &e) || e.Confirmed != 0 {
		t.Errorf("with no replica: %v", err)
	}
	other := testlock.NewSession(t, server.Client(t))
	for _, name := range []string{"a", "b", "c"} {
		testlock.Must(t, testlock.Cycle(bg, rlock.New(other, name), rlock.WaitAtMost(10*time.Second)))
	}
	replica.Thaw()
}

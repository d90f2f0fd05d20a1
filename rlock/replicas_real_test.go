package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// has reports whether n replicas get the lock within this time. It fails the test if WaitReplicas returns an
// error other than that of its deadline.
func has(t *testing.T, hold *rlock.Hold, n int, within time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, within)
	defer cancel()
	err := hold.WaitReplicas(ctx, n)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

// Proves: WaitReplicas
func TestWaitReplicasCountsTheReplicasThatHaveAHold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	frozen := server.StartReplica(t)
	rdb := server.Client(t)
	s := testlock.NewSession(t, rdb)
	var holds []*rlock.Hold
	all := []rlock.Locker{multilock.New(rlock.New(s, "y"), fairlock.New(s, "z"))}
	for _, newLocker := range queued {
		all = append(all, newLocker(s))
	}
	for _, l := range all {
		hold := testlock.Take(t, l)
		holds = append(holds, hold)
		if !has(t, hold, 2, testlock.Patience) {
			t.Errorf("%s: with both of its replicas", hold.Name())
		}
	}
	frozen.Freeze()
	for _, hold := range holds {
		if !has(t, hold, 1, testlock.Patience) {
			t.Errorf("%s: with one of its replicas", hold.Name())
		}
		if has(t, hold, 2, 300*time.Millisecond) {
			t.Errorf("%s: with a replica that stands still", hold.Name())
		}
		testlock.Must(t, hold.Err())
	}
	frozen.Thaw()
	for _, hold := range holds {
		if !has(t, hold, 2, testlock.Patience) {
			t.Errorf("%s: with both of its replicas again", hold.Name())
		}
		testlock.Unlock(t, hold)
	}
}

// WAIT counts only the writes of its own connection. The grant was written by another connection, so WAIT
// alone would return at once. Proves: WaitReplicas
func TestAHandOverByMessageIsNotOnAReplicaThatStandsStill(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	replica := server.StartReplica(t)
	waits := make(testlock.Waits, 1)
	holder := fairlock.New(testlock.NewSession(t, server.Client(t)), "x")
	_, hold := testlock.Lock(t, holder, bg)
	got := testlock.Go(bg, fairlock.New(testlock.NewSession(t, server.Client(t), rlock.WithObserver(waits)),
		"x"))
	testlock.Receive(t, "waiting", waits)
	if !has(t, hold, 1, testlock.Patience) {
		t.Error("with a replica")
	}
	replica.Freeze()
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, got)
	if has(t, next, 1, 300*time.Millisecond) {
		t.Error("a hand-over that no replica knows of")
	}
	replica.Thaw()
	if !has(t, next, 1, testlock.Patience) {
		t.Error("once it goes on")
	}
	testlock.Unlock(t, next)
}

// When a server becomes a replica, it ends each blocked WAIT with the error UNBLOCKED.
// Proves: WaitReplicas
func TestWaitReplicasOutlastsATimeInWhichTheServerIsAReplica(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	done := make(chan error, 1)
	go func() { done <- hold.WaitReplicas(testlock.Bounded(t), 1) }()
	testlock.Eventually(t, "a WAIT", func() bool {
		return strings.Contains(rdb.Info(bg, "clients").Val(), "blocked_clients:1")
	})
	testlock.Must(t, rdb.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err())
	testlock.Must(t, rdb.Do(bg, "REPLICAOF", "NO", "ONE").Err())
	server.StartReplica(t)
	testlock.Must(t, testlock.Receive(t, "a replica", done))
	testlock.Unlock(t, hold)
}

func TestARedLockNeedsNoReplicas(t *testing.T) {
	t.Parallel()
	hold := testlock.Take(t, testlock.RedLock("redlock", testlock.NewSession(t, testlock.Shared(t))))
	if err := hold.WaitReplicas(bg, 1); err == nil || !strings.Contains(err.Error(), "must not replicate") {
		t.Errorf("WaitReplicas: %v", err)
	}
	testlock.Unlock(t, hold)
}

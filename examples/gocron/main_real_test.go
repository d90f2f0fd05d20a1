package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shown is in the README, too.
const shown = `The clocks differ, so the machines come to a tick of a quick job one after the other.
  machine 1 has run it
  machine 2 skips it, it has started already
  machine 3 skips it, it has started already
A run takes longer than the lease.
  machine 2 skips it, another machine runs it
  machine 1 has run it
An operator frees the lock of a run.
  machine 1 has stopped it, lockline: lock lost
Machine 1 is elected.
  machine 1 has run it
  machine 2 skips it, another machine leads
Machine 1 resigns.
  machine 1 skips it, another machine leads
  machine 2 has run it
`

func TestShownInTheREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```text\n"+shown+"```\n") {
		t.Error("the README shows something else")
	}
}

func TestEachTickIsRunOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), "redis://"+testredis.Start(t).Addr, &out); err != nil {
		t.Error(err)
	}
	if out.String() != shown {
		t.Errorf("it said\n%swant\n%s", &out, shown)
	}
}

// start makes n machines that stop with the test.
func start(t *testing.T, n int) (machines []*machine) {
	url := "redis://" + testredis.Start(t).Addr
	for i := range n {
		m, err := newMachine(url, i+1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.stop)
		machines = append(machines, m)
	}
	return machines
}

// lockAtLast locks as soon as it is possible. Until then each error must match one of those that are expected.
func lockAtLast(t *testing.T, l *locker, name string, expected ...error) *jobLock {
	t.Helper()
	for {
		lock, err := l.Lock(t.Context(), name)
		if err == nil {
			return lock.(*jobLock)
		}
		known := false
		for _, e := range expected {
			known = known || errors.Is(err, e)
		}
		if !known {
			t.Fatal(err)
		}
	}
}

func TestTheRecordOutlivesTheProcessAndThenEnds(t *testing.T) {
	t.Parallel()
	machines := start(t, 2)
	a, b := machines[0], machines[1]
	if _, err := newLocker(a.session, a.rdb, time.Minute).Lock(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	a.stop() // gives the lock back
	second := newLocker(b.session, b.rdb, time.Minute)
	if _, err := second.Lock(t.Context(), "job"); !errors.Is(err, errRecent) {
		t.Fatalf("the second process got %v, want %v", err, errRecent)
	}
	const record = "gocron:started:job"
	if left := b.rdb.PTTL(t.Context(), record).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the record lasts for another %v", left)
	}
	b.rdb.PExpire(t.Context(), record, time.Millisecond) // a minute later
	lock := lockAtLast(t, second, "job", errRecent)
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheLockOfADeadProcessComesFree(t *testing.T) {
	t.Parallel()
	machines := start(t, 2)
	a, b := machines[0], machines[1]
	lock, err := newLocker(a.session, a.rdb, time.Millisecond).Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	_ = a.rdb.Close() // it can neither renew nor unlock
	next := lockAtLast(t, newLocker(b.session, b.rdb, time.Millisecond), "job", rlock.ErrLocked, errRecent)
	ctx := lock.(*jobLock).ctx
	<-ctx.Done() // its timer may be late
	if !errors.Is(context.Cause(ctx), rlock.ErrLost) {
		t.Errorf("the job's context has ended: %v", context.Cause(ctx))
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfARunThatLostItsLockLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	machines := start(t, 2)
	a, b := machines[0], machines[1]
	l := newLocker(a.session, a.rdb, time.Millisecond)
	lost := lockAtLast(t, l, "job")
	if _, err := l.lock("job").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lost.ctx.Done()
	next := lockAtLast(t, l, "job", errRecent)
	if err := lost.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("unlocking the first one: %v", err)
	}
	if l.held["job"] != next || next.ctx.Err() != nil {
		t.Errorf("the next run has lost its lock: %v", context.Cause(next.ctx))
	}
	if _, err := newLocker(b.session, b.rdb, time.Millisecond).Lock(t.Context(), "job"); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("another machine got %v", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAJobDoesNotRunWithoutTheLocker(t *testing.T) {
	t.Parallel()
	m := start(t, 1)[0]
	if err := m.schedule(gocron.WithLocation(time.UTC)); err != nil {
		t.Fatal(err)
	}
	work := func(context.Context) error { t.Error("it ran"); return nil }
	if _, err := newLocker(m.session, m.rdb, time.Minute).newJob(m.scheduler, tick(), "job", work); err != nil {
		t.Fatal(err)
	}
	if what, want := <-m.news, "has stopped it, "+errOther.Error(); what != want {
		t.Errorf("it %s, want %s", what, want)
	}
}

func TestALeaderThatHasNotNoticedTheEndIsNone(t *testing.T) {
	t.Parallel()
	m := start(t, 1)[0]
	ctx, leadership, err := election.New(m.session, "scheduler").Campaign(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	e := &elector{}
	e.term.Store(&term{ctx, leadership})
	if err := e.IsLeader(t.Context()); err != nil {
		t.Errorf("the leader: %v", err)
	}
	if err := leadership.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.IsLeader(t.Context()) == nil {
		t.Error("it still leads")
	}
}

func TestAJobEndsWithTheLeadership(t *testing.T) {
	t.Parallel()
	m := start(t, 1)[0]
	e := &elector{}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m.campaign.Go(func() { e.campaign(ctx, election.New(m.session, "scheduler"), "1") })
	if err := e.await(ctx); err != nil {
		t.Fatal(err)
	}
	err := e.task(func(ctx context.Context) error {
		if _, err := fairlock.New(m.session, "scheduler").ForceUnlock(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})(ctx)
	if !errors.Is(err, rlock.ErrLost) {
		t.Errorf("the job ended with %v, want %v", err, rlock.ErrLost)
	}
}

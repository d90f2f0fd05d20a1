package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestLockersShareTheJobsOfARealServer(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	name := testlock.Prefix(rdb)
	a, first := locking(t, rdb, time.Minute)
	b, second := locking(t, rdb, time.Minute)

	begun := make(chan struct{}, 1)
	_, err := first.NewJob(a.scheduler, now(), name, untilEnd(begun))
	testlock.Must(t, err)
	testlock.Receive(t, "the first run begins", begun)
	tick := func(want error) {
		t.Helper()
		_, err := second.NewJob(b.scheduler, now(), name, quick)
		testlock.Must(t, err)
		if err := testlock.Receive(t, "the tick is skipped", b.skipped); !errors.Is(err, want) {
			t.Errorf("skipped: %v, want %v", err, want)
		}
	}
	tick(rlock.ErrLocked)
	testlock.Must(t, a.scheduler.Shutdown())
	if err := testlock.Receive(t, "the first run ends", a.failed); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	tick(rlock.ErrLocked)
}

func TestElectorsHandOverOnARealServer(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	leads := func(c *candidate) func() bool { return func() bool { return c.IsLeader(t.Context()) == nil } }
	first := campaign(t, testlock.NewSession(t, rdb), "1")
	testlock.Eventually(t, "the first one leads", leads(first))
	session := testlock.NewSession(t, rdb)
	second := campaign(t, session, "2")
	m := start(t, session, gocron.WithDistributedElector(second))
	done := make(chan struct{}, 1000)
	task := second.Task(func(context.Context) error {
		if first.IsLeader(t.Context()) == nil {
			t.Error("it runs beside the leader")
		}
		select {
		case done <- struct{}{}:
		default:
		}
		return nil
	})
	_, err := m.scheduler.NewJob(gocron.DurationJob(time.Millisecond), gocron.NewTask(task))
	testlock.Must(t, err)
	testlock.WantError(t, "Run", first.stop(), context.Canceled)
	testlock.Receive(t, "the second one runs the job", done)
}

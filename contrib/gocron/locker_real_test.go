package gocronlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
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

// dropped counts the values that it has made. It also counts the values that the garbage collector has freed.
type dropped struct{ made, gone atomic.Int64 }

func (d *dropped) value() *[64]byte {
	v := new([64]byte)
	d.made.Add(1)
	runtime.AddCleanup(v, func(int) { d.gone.Add(1) }, 0)
	return v
}

// wantAll fails the test unless the garbage collector frees all values.
func (d *dropped) wantAll(t *testing.T, of string) {
	t.Helper()
	testlock.Eventually(t, "nothing stays of the "+of, func() bool {
		runtime.GC()
		return d.gone.Load() == d.made.Load()
	})
}

type contextKey struct{}

// A program may use each name of a job only once. So the Locker, the session and the scheduler must keep
// nothing of a job that has run.
func TestNothingStaysOfAJobThatHasRun(t *testing.T) {
	t.Parallel()
	const jobs = 50
	rdb := testlock.Shared(t)
	m, l := locking(t, rdb, 0)
	var granted, run dropped
	for i := range jobs { // as gocron locks jobs that NewJob of the Locker has not added
		ctx := context.WithValue(t.Context(), contextKey{}, granted.value())
		lock, err := l.Lock(ctx, fmt.Sprint("plain ", i))
		testlock.Must(t, err)
		testlock.Must(t, lock.Unlock(ctx))
	}
	granted.wantAll(t, "locks")
	for i := range jobs {
		v := run.value()
		_, err := l.NewJob(m.scheduler, now(), fmt.Sprint("job ", i), func(context.Context) error {
			runtime.KeepAlive(v)
			return nil
		}, gocron.WithLimitedRuns(1))
		testlock.Must(t, err)
	}
	testlock.Eventually(t, "all have run", func() bool { return m.runs.Load() == jobs })
	testlock.Eventually(t, "all are removed", func() bool { return len(m.scheduler.Jobs()) == 0 })
	run.wantAll(t, "jobs")
	testlock.Eventually(t, "no goroutine stays of each", func() bool {
		stacks := make([]byte, 10<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Count(stacks, []byte("gocron/v2.(*executor)")) < jobs/2
	})
}

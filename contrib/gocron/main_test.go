package gocronlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	gocronlock "github.com/lockline/lockline/contrib/gocron"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { testredis.Run(m) }

// A machine is one process with a scheduler. A test has several machines.
type machine struct {
	session   *rlock.Session
	scheduler gocron.Scheduler
	runs      atomic.Int64
	skipped   chan error // errors with which the Locker refused ticks
	failed    chan error // errors of runs
}

// start starts a machine with this session, and with a scheduler that has this option. The scheduler is shut
// down when the test ends.
func start(t *testing.T, session *rlock.Session, option gocron.SchedulerOption) *machine {
	t.Helper()
	m := &machine{session: session, skipped: make(chan error, 1000), failed: make(chan error, 1000)}
	scheduler, err := gocron.NewScheduler(option, gocron.WithGlobalJobOptions(gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { m.skipped <- err }),
		gocron.AfterJobRuns(func(uuid.UUID, string) { m.runs.Add(1) }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { m.failed <- err }))))
	testlock.Must(t, err)
	m.scheduler = scheduler
	t.Cleanup(func() { _ = scheduler.Shutdown() })
	scheduler.Start()
	return m
}

// locking starts a machine whose scheduler uses a Locker, and returns both.
func locking(t *testing.T, rdb *redis.Client, apart time.Duration) (*machine, *gocronlock.Locker) {
	t.Helper()
	session := testlock.NewSession(t, rdb)
	l := gocronlock.NewLocker(session, apart)
	return start(t, session, gocron.WithDistributedLocker(l)), l
}

func quick(context.Context) error { return nil }

// never returns the function of a job that must not run.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("it works"); return nil }
}

// untilEnd returns the function of a job. This function sends to begun, waits until its context ends, and
// returns the cause.
func untilEnd(begun chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

func now() gocron.JobDefinition { return gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()) }

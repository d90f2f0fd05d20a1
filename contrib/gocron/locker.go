package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// patience bounds each wait for Redis. A tick that cannot be locked by then is skipped.
const patience = 5 * time.Second

var errNoLock = errors.New("gocronlock: the job was run without its lock: " +
	"its scheduler must have no Elector, and the job must not disable locks")

// Locker is a gocron.Locker. Of all schedulers that use one, with the same Redis and prefix, only one runs a
// job of a given name at a time. The session renews the lock, so a run may take longer than the lease. The
// lock of a process that died is free when its lease is over.
//
// gocron unlocks a job as soon as its run has ended. A lock alone does not keep a scheduler whose clock is a
// second behind from running a job of a millisecond again, for the same tick. So a job stays locked for a
// while after it has begun, by [rlock.HoldAtLeast], also if the run, the scheduler and the process end
// before.
//
// So a tick is run at most once, unless Redis loses the lock. It is not run again if the job fails. If its
// process dies, the job is free when the lease is over, which is 15 s unless the session has another one.
//
// A job named NAME uses the lock gocron:NAME. All methods are safe for concurrent use.
type Locker struct {
	session *rlock.Session
	apart   time.Duration
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker makes a Locker for gocron.WithDistributedLocker. It does no I/O. The caller closes the session.
//
// The duration apart is how long a job stays locked at least, from its beginning. Choose it longer than the
// machines' clocks can differ, and shorter than the time between two ticks. If the jobs are DurationJobs that
// begin whenever their process does, it is a bit less than their interval. It is from 1 ms to ten years, or
// 0, with which a job is free as soon as its run has ended. Any other value is an error of [Locker.NewJob]
// and of each [Locker.Lock].
func NewLocker(session *rlock.Session, apart time.Duration) *Locker {
	return &Locker{session: session, apart: apart}
}

// check returns the error of an apart that NewLocker must not be given.
func (l *Locker) check() error {
	if l.apart == 0 {
		return nil
	}
	return protocol.CheckDuration("gocronlock.NewLocker", l.apart, protocol.MinTime, protocol.MaxLease)
}

// NewJob adds a job to a scheduler. The job uses the Locker, whatever Locker the scheduler or the options
// have. Its context also ends when its lock is lost, with a cause that matches rlock.ErrLost.
//
// The name is that of the lock: jobs of one name exclude each other in all processes. It replaces a name
// among the options. In one scheduler, no run of the job begins before the last one has ended, even if that
// one has lost its lock and does not stop. Such a tick is skipped, unless the options have
// gocron.WithSingletonMode, which can make it wait.
//
// NewJob blocks as scheduler.NewJob does, and returns its errors. If the scheduler has an Elector, for which
// gocron uses no locks, each run of the job fails.
func (l *Locker) NewJob(scheduler gocron.Scheduler, when gocron.JobDefinition, name string,
	work func(ctx context.Context) error, options ...gocron.JobOption) (gocron.Job, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	j := &job{locker: l}
	task := gocron.NewTask(func(context.Context) error {
		ctx, err := j.begin()
		if err != nil {
			return err
		}
		return work(ctx)
	})
	return scheduler.NewJob(when, task,
		append(append([]gocron.JobOption(nil), options...),
			gocron.WithName(name), gocron.WithDistributedJobLocker(j))...)
}

// job is the Locker of one job that NewJob has added. gocron passes nothing from Lock to the task, so the job
// keeps the context of its lock in between.
type job struct {
	locker *Locker

	mu      sync.Mutex // guards what follows
	locked  bool       // from the beginning of Lock to the end of Unlock, which gocron calls after the run
	granted *jobLock   // the lock whose run has not begun; nil: there is none
}

var _ gocron.Locker = (*job)(nil)

// Lock locks the job as Locker.Lock does, unless another run of the job has not ended. A gocron singleton
// would do as well, but gocron keeps a goroutine for each until the scheduler ends, also if the job was
// removed.
func (j *job) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	j.mu.Lock()
	if j.locked {
		j.mu.Unlock()
		return nil, fmt.Errorf("gocronlock: job %q: its last run has not ended: %w", name, rlock.ErrLocked)
	}
	j.locked = true
	j.mu.Unlock()

	running, hold, err := j.locker.lock(ctx, name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.locked = false
		return nil, err
	}
	j.granted = &jobLock{j, running, hold}
	return j.granted, nil
}

// begin returns the context of the lock for the run that begins. The error is that there is no lock, or that
// it was lost before the run began.
func (j *job) begin() (context.Context, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.granted
	if j.granted = nil; l == nil {
		return nil, errNoLock
	}
	return l.running, l.hold.Err()
}

// jobLock is the lock of a run of a job that NewJob has added.
type jobLock struct {
	job     *job
	running context.Context
	hold    *rlock.Hold
}

// Unlock ends the run's lock, also if the run was called off before it began.
func (l *jobLock) Unlock(ctx context.Context) error {
	defer func() {
		l.job.mu.Lock()
		defer l.job.mu.Unlock()
		l.job.locked, l.job.granted = false, nil
	}()
	return l.hold.Unlock(ctx)
}

// Lock is for gocron, which skips the tick if it returns an error. It does not wait for another run: the tick
// would be late, and done already. It blocks for a request to Redis, and gives up on it after 5 s. The error
// matches
//   - [rlock.ErrLocked], if another run is under way, or has begun less than apart ago;
//   - ctx.Err(), if ctx ended;
//   - [rlock.ErrClosed], if the session is closed;
//   - else it is one of go-redis.
//
// After an error the job is not locked.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	_, hold, err := l.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// lock locks a job for a run that begins now, and returns the context for that run.
func (l *Locker) lock(ctx context.Context, name string) (context.Context, *rlock.Hold, error) {
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	lock := rlock.New(l.session, "gocron:"+name, rlock.HoldAtLeast(l.apart))
	return lock.TryLock(ctx, rlock.WaitAtMost(patience))
}

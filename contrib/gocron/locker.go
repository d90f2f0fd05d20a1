package gocronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockline/lockline/rlock"
)

// patience bounds each wait for Redis. A tick that cannot be locked by then is skipped.
const patience = 5 * time.Second

var errNoLock = errors.New("gocronlock: the job's scheduler does not use this Locker")

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
// process dies, the job is free when the lease is over, which is 30 s unless the session has another one.
//
// A job named NAME uses the lock gocron:NAME. All methods are safe for concurrent use.
type Locker struct {
	session *rlock.Session
	apart   time.Duration

	mu      sync.Mutex                 // guards granted
	granted map[string]context.Context // of locks whose run has not begun, by job
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker makes a Locker for gocron.WithDistributedLocker. It does no I/O. The caller closes the session.
//
// The duration apart is how long a job stays locked at least, from its beginning. Choose it longer than the
// machines' clocks can differ, and shorter than the time between two ticks. If the jobs are DurationJobs that
// begin whenever their process does, it is a bit less than their interval. It is passed on to
// rlock.HoldAtLeast. So one below 1 ms, other than 0, is an error of each Lock, as 30 without a unit is.
func NewLocker(session *rlock.Session, apart time.Duration) *Locker {
	return &Locker{session: session, apart: apart, granted: map[string]context.Context{}}
}

// NewJob adds a job to a scheduler that uses the Locker. The job's context also ends when its lock is lost,
// with a cause that matches rlock.ErrLost. A run that does not stop then sees no other one begin in this
// scheduler.
//
// The name is that of the lock: jobs of one name exclude each other in all processes. It replaces a name
// among the options. The job is a singleton, with gocron.LimitModeReschedule unless the options choose the
// other mode.
//
// It blocks as scheduler.NewJob does, and returns its errors. If the scheduler does not use the Locker, each
// run of the job fails.
func (l *Locker) NewJob(scheduler gocron.Scheduler, when gocron.JobDefinition, name string,
	work func(ctx context.Context) error, options ...gocron.JobOption) (gocron.Job, error) {
	task := gocron.NewTask(func(context.Context) error {
		ctx, ok := l.begin(name)
		if !ok {
			return errNoLock
		}
		return work(ctx)
	})
	all := []gocron.JobOption{gocron.WithSingletonMode(gocron.LimitModeReschedule)}
	return scheduler.NewJob(when, task, append(append(all, options...), gocron.WithName(name))...)
}

// begin takes what was granted to a run. If one was slow to begin and has lost its lock, it may take that of
// the next one. Then the next one finds none, so that only one of the two works.
func (l *Locker) begin(name string) (ctx context.Context, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, ok = l.granted[name]
	delete(l.granted, name)
	return ctx, ok
}

// Lock is for gocron, which skips the tick if it returns an error. It does not wait for another run: the tick
// would be late, and done already. It blocks for a request to Redis, and gives up on it after 5 s if the
// client has ContextTimeoutEnabled. The error matches
//   - [rlock.ErrLocked], if another run is under way, or has begun less than apart ago;
//   - ctx.Err(), if ctx ended;
//   - [rlock.ErrClosed], if the session is closed;
//   - else it is one of go-redis.
//
// After an error the job is not locked.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lock := rlock.New(l.session, "gocron:"+name, rlock.HoldAtLeast(l.apart))
	running, hold, err := lock.TryLock(ctx, rlock.WaitAtMost(patience))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[name] = running
	return hold, nil
}

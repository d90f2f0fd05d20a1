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

// patience is the longest time for which Lock waits for the reply of Redis. If there is no reply by then,
// gocron skips the tick.
const patience = 5 * time.Second

var errNoLock = errors.New("gocronlock: the job was run without its lock: " +
	"its scheduler must have no Elector, and the job must not disable locks")

// Locker is a gocron.Locker. If several schedulers use Lockers with the same Redis and the same prefix, only
// one scheduler at a time runs a job of a given name. The session renews the lock, so a run may take longer
// than the lease.
//
// gocron unlocks a job as soon as its run has ended. Suppose that a run takes a millisecond, and that the
// clock of another scheduler is a second behind. That scheduler would then run the job again, for the same
// tick. To prevent this, the Locker uses [rlock.HoldAtLeast]. After a run has ended, the job stays locked
// until the time that NewLocker was given has passed since the grant of the lock. This is so even if the
// scheduler shuts down or the process exits.
//
// So a tick is run at most once, if the clocks differ by less than that time and the lock is not lost. A tick
// whose run fails is not run again. If the process dies during a run, the lock is free when its lease
// expires, even if that time has not passed. The lease is 15 s, unless the session has another one.
//
// A job named NAME uses the lock gocron:NAME. All methods are safe for concurrent use.
type Locker struct {
	session *rlock.Session
	apart   time.Duration // see NewLocker
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker for gocron.WithDistributedLocker. It does no I/O. The caller must close the
// session.
//
// A job stays locked for at least the time apart after the lock was granted for a run. Choose a time that is
// longer than the largest difference between the clocks of the machines, and shorter than the time between
// two ticks. For a DurationJob without a start time, each process has ticks of its own, so choose a bit less
// than the interval.
//
// With 0, a job is free as soon as its run has ended. Any other time must be from 1 ms to ten years.
// Otherwise [Locker.NewJob] and [Locker.Lock] return an error.
func NewLocker(session *rlock.Session, apart time.Duration) *Locker {
	return &Locker{session: session, apart: apart}
}

// check returns an error if the time apart is not valid.
func (l *Locker) check() error {
	if l.apart == 0 {
		return nil
	}
	return protocol.CheckDuration("gocronlock.NewLocker", l.apart, protocol.MinTime, protocol.MaxLease)
}

// NewJob adds a job to a scheduler. The job uses this Locker, even if the scheduler or the options have
// another Locker. The context that work gets also ends when the lock is lost. The cause of the context then
// matches rlock.ErrLost.
//
// The job gets this name, even if the options have another name. Jobs with the same name exclude each other
// in all processes. In the scheduler, a run of the job begins only after the previous run has ended, even if
// the previous run has lost its lock and continues. If the previous run has not ended at a tick, the tick is
// skipped. With the option gocron.WithSingletonMode, the tick can wait instead.
//
// NewJob blocks for as long as the NewJob of the scheduler, and returns the errors of that method. A run
// without a lock fails. So if the scheduler has an Elector, or the options disable locks, each run fails.
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

// job is the gocron.Locker of one job that NewJob has added. gocron passes no result of Lock to the task. So
// job stores the lock until the task begins.
type job struct {
	locker *Locker

	mu      sync.Mutex // guards locked and granted
	locked  bool       // a Lock has begun, and its Unlock has not ended yet
	granted *jobLock   // lock of a run that has not begun; nil: there is none
}

var _ gocron.Locker = (*job)(nil)

// Lock locks the job like Locker.Lock. If another run of the job has not ended, it returns an error instead.
// The singleton mode of gocron could do the same, but it keeps a goroutine for each job until the scheduler
// shuts down, even if the job was removed.
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

// begin returns the context for a run that is beginning. It returns an error if the run has no lock, or if
// the lock was lost before the run began.
func (j *job) begin() (context.Context, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.granted
	if j.granted = nil; l == nil {
		return nil, errNoLock
	}
	return l.running, l.hold.Err()
}

// jobLock is the lock of one run of a job that NewJob has added.
type jobLock struct {
	job     *job
	running context.Context // context for the run
	hold    *rlock.Hold
}

// Unlock releases the lock of the run. gocron also calls it if a hook has canceled the run before its task
// began.
func (l *jobLock) Unlock(ctx context.Context) error {
	defer func() {
		l.job.mu.Lock()
		defer l.job.mu.Unlock()
		l.job.locked, l.job.granted = false, nil
	}()
	return l.hold.Unlock(ctx)
}

// Lock locks the job of this name for a run. gocron calls Lock at each tick, and skips the tick if Lock
// returns an error. Lock does not wait for another run to end, because that run may be the run of the same
// tick. It blocks for one request, for at most 5 s. The error matches
//   - [rlock.ErrLocked], if another run has not ended, or has begun less than the time apart ago;
//   - ctx.Err(), if ctx has ended;
//   - [rlock.ErrClosed], if the session is closed;
//   - os.ErrDeadlineExceeded, if Redis has not replied within 5 s.
//
// Any other error is an error of go-redis, or names a mistake, such as a time apart that is not valid. After
// an error, this call has not locked the job.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	_, hold, err := l.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// lock locks a job for a run, and returns the context for that run.
func (l *Locker) lock(ctx context.Context, name string) (context.Context, *rlock.Hold, error) {
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	lock := rlock.New(l.session, "gocron:"+name, rlock.HoldAtLeast(l.apart))
	return lock.TryLock(ctx, rlock.WaitAtMost(patience))
}

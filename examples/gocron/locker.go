package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// patience bounds each wait for Redis. A tick that cannot be locked by then is skipped.
const patience = 5 * time.Second

var (
	errRecent = errors.New("it has started already")
	errOther  = errors.New("the scheduler does not use this locker")
)

// locker is a gocron.Locker. Of all schedulers that use one, with the same Redis, only one
// runs a job of a given name at a time. The session renews the lock, so a run may take longer
// than the lease. The lock of a process that died is free when its lease is over.
//
// gocron unlocks a job as soon as its run has ended. A lock alone does not keep a scheduler
// whose clock is a second behind from running a job of a millisecond again, for the same tick.
// So the locker also records each start in Redis, for a duration called apart. It must be
// longer than the clocks can differ, and shorter than the time between two ticks. If the jobs
// are DurationJobs that begin whenever their process does, it is a bit less than their
// interval. The record outlives the run, the lock and the process.
//
// So a tick is run at most once, unless Redis loses the record. It is not run again if the job
// fails or its process dies.
type locker struct {
	session *rlock.Session
	rdb     *redis.Client
	apart   time.Duration // above 0

	mu   sync.Mutex // guards held
	held map[string]*jobLock
}

func newLocker(session *rlock.Session, rdb *redis.Client, apart time.Duration) *locker {
	return &locker{session: session, rdb: rdb, apart: apart, held: map[string]*jobLock{}}
}

// jobLock is the gocron.Lock of one run.
type jobLock struct {
	locker *locker
	name   string
	ctx    context.Context // ends with the hold, and with the context that gocron gives the job
	hold   *rlock.Hold
}

// Lock returns an error if another run of the job is under way or has just begun, or if Redis
// does not answer. gocron skips the tick then. It does not wait for the other run: the tick
// would be late, and done already.
func (l *locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	running, hold, err := l.lock(name).TryLock(ctx, rlock.WaitAtMost(patience))
	if err != nil {
		return nil, err
	}
	j := &jobLock{l, name, running, hold}
	if err := l.record(running, name); err != nil {
		return nil, errors.Join(err, j.Unlock(ctx))
	}
	l.mu.Lock()
	l.held[name] = j
	l.mu.Unlock()
	return j, nil
}

func (l *locker) lock(name string) *rlock.Mutex { return rlock.New(l.session, "gocron:"+name) }

// record writes down that the job starts, unless that is on record. If only the reply is lost,
// the client asks again and finds its own record: the tick is skipped, and not run twice.
func (l *locker) record(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := l.rdb.SetNX(ctx, "gocron:started:"+name, 1, l.apart).Result()
	if err == nil && !first {
		err = errRecent
	}
	return err
}

// Unlock is also called when gocron shuts down, with a context that has ended.
func (j *jobLock) Unlock(ctx context.Context) error {
	j.locker.mu.Lock()
	if j.locker.held[j.name] == j { // and not that of a later run, if this one has lost its lock
		delete(j.locker.held, j.name)
	}
	j.locker.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return j.hold.Unlock(ctx)
}

// newJob adds a job whose context also ends if its lock is lost. gocron's Locker cannot do
// that: it returns no context, and the job gets one that ends with the scheduler alone. A job
// that is added by other means runs on after a loss, and learns nothing of it.
//
// A process can act before it notices a loss, as after a long pause. What must not be written
// then needs a fencing token, as in the example "fencing".
func (l *locker) newJob(s gocron.Scheduler, when gocron.JobDefinition, name string, work func(ctx context.Context) error, options ...gocron.JobOption) (gocron.Job, error) {
	task := gocron.NewTask(func(context.Context) error {
		l.mu.Lock()
		j := l.held[name]
		l.mu.Unlock()
		if j == nil {
			return errOther
		}
		return work(j.ctx)
	})
	options = append(options,
		// The name is the lock's. By default it is that of the function, here the same for all jobs.
		gocron.WithName(name),
		// A run that has lost its lock, and does not stop, must not see another one begin beside it.
		gocron.WithSingletonMode(gocron.LimitModeReschedule))
	return s.NewJob(when, task, options...)
}

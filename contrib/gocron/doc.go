// Package gocronlock has the gocron schedulers of several processes share their jobs, by locks of Lockline.
// It implements gocron's Locker and its Elector. A scheduler uses one of them:
//
//	locker := gocronlock.NewLocker(session, 30*time.Second)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	job, err := locker.NewJob(scheduler, gocron.DurationJob(time.Minute), "report", report)
//
//	elector := gocronlock.NewElector(election.New(session, "scheduler"), "machine 1")
//	go elector.Run(ctx)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	job, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(elector.Task(report)))
//
// With a [Locker], each tick of a job is run by the process that is first to lock the job. With an [Elector],
// one process runs all jobs while it leads. gocron uses no Locker where it has an Elector.
//
// # When a lock is lost
//
// gocron gives a job a context that ends with the job or the scheduler alone. So a job that is added by
// gocron's means runs on after its lock is lost, beside the next run. The context of a job that is added by
// [Locker.NewJob], or whose task is made by [Elector.Task], also ends with the lock or the leadership.
//
// A process can act before it notices a loss, as after a long pause. What must not be written then needs a
// fencing token.
//
// # Shutting down
//
// First shut down the scheduler. Then its jobs have ended, and their locks are given back. Then end an
// Elector's Run, and close the session.
package gocronlock

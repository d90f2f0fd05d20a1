// Package gocronlock lets the gocron schedulers of several processes share their jobs, by locks of Lockline.
// It implements the interfaces Locker and Elector of gocron. A scheduler uses either a Locker:
//
//	locker := gocronlock.NewLocker(session, 30*time.Second)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	job, err := locker.NewJob(scheduler, gocron.DurationJob(time.Minute), "report", report)
//
// or an Elector:
//
//	elector := gocronlock.NewElector(election.New(session, "scheduler"), "machine 1")
//	go elector.Run(ctx)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	job, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(elector.Task(report)))
//
// A tick is a time at which a job is due. With a [Locker], the first process that locks a job at a tick runs
// the job. With an [Elector], one process runs all jobs while it leads. If a scheduler has an Elector, gocron
// does not use its Locker.
//
// # When a lock is lost
//
// The context that gocron makes for a job does not end if the job's lock is lost. So the job continues, and
// the next run may begin beside it. If you add the job by [Locker.NewJob], its context also ends when the
// lock is lost. If you make the task by [Elector.Task], its context also ends when the leadership ends.
//
// After a long pause, a process may write something before it notices that it has lost the lock. To keep out
// such a write, send the fencing token with each write, and let the database check the token.
//
// # Shutting down
//
// First call the Shutdown of the scheduler. It waits until the running jobs have ended and have been
// unlocked, for up to 10 s by default. After that, end the Run of an Elector, and close the session.
package gocronlock

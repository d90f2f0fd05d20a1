package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	gocronlock "github.com/lockline/lockline/contrib/gocron"
	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// connect returns a session on a server in memory. In your program, use your own server.
func connect() (session *rlock.Session, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	session, err := rlock.NewSession(rdb)
	if err != nil {
		log.Fatal(err)
	}
	return session, func() {
		_ = session.Close()
		_ = rdb.Close()
		server.Close()
	}
}

// Two schedulers stand for two machines. Both come to the same tick of a job, and only one of them runs the
// job.
func ExampleNewLocker() {
	session, end := connect()
	defer end()
	report := func(ctx context.Context) error { // ctx is canceled if the lock is lost
		fmt.Println("report")
		return nil
	}

	for range 2 {
		// The clocks of the machines differ by less than 30 s, and ticks are a minute apart.
		locker := gocronlock.NewLocker(session, 30*time.Second)
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			log.Fatal(err)
		}
		over := make(chan bool)
		_, err = locker.NewJob(scheduler, gocron.DurationJob(time.Minute), "report", report,
			gocron.WithStartAt(gocron.WithStartImmediately()),
			gocron.WithEventListeners(
				gocron.AfterJobRuns(func(uuid.UUID, string) { over <- true }),
				gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
					fmt.Println(name, "is skipped:", errors.Is(err, rlock.ErrLocked))
					over <- true
				})))
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
		<-over
		if err := scheduler.Shutdown(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// report
	// report is skipped: true
}

// Only the scheduler of the leader runs jobs.
func ExampleNewElector() {
	session, end := connect()
	defer end()
	elector := gocronlock.NewElector(election.New(session, "scheduler"), "machine 1")
	ctx, stop := context.WithCancel(context.Background())
	resigned := make(chan error)
	go func() { resigned <- elector.Run(ctx) }()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	report := elector.Task(func(ctx context.Context) error { // ctx is canceled if the leadership ends
		fmt.Println("report")
		close(done)
		<-ctx.Done()
		return nil
	})
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(report),
		gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	if err := scheduler.Shutdown(); err != nil { // before stop: no job may run beside another leader
		log.Fatal(err)
	}
	stop()
	fmt.Println(<-resigned)
	// Output:
	// report
	// context canceled
}

// Command gocron has the schedulers of several machines share their jobs, by Lockline's
// implementations of gocron's Locker (locker.go) and Elector (elector.go). It shows what
// happens if the machines' clocks differ, if a run takes longer than the lease, if a run
// loses its lock, and if the leader changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

// lease is short, for the show. The default of 30 s is better for real ones.
const lease = 2 * time.Second

// machine is one process of the program, of which there are several.
type machine struct {
	number    int
	rdb       *redis.Client
	session   *rlock.Session
	scheduler gocron.Scheduler
	news      chan string    // what becomes of each tick
	campaign  sync.WaitGroup // of its elector
}

func newMachine(url string, number int) (*machine, error) {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return nil, err
	}
	session, err := rlock.NewSession(rdb, rlock.WithWatchdogTimeout(lease), rlock.WithLogger(slog.New(slog.DiscardHandler)))
	return &machine{number: number, rdb: rdb, session: session, news: make(chan string, 10)}, err
}

// schedule starts the machine's scheduler, with a locker or an elector.
func (m *machine) schedule(option gocron.SchedulerOption) (err error) {
	skipped := func(_ uuid.UUID, _ string, err error) {
		if errors.Is(err, rlock.ErrLocked) {
			err = errors.New("another machine runs it")
		}
		m.news <- fmt.Sprint("skips it, ", err)
	}
	m.scheduler, err = gocron.NewScheduler(option, gocron.WithGlobalJobOptions(gocron.WithEventListeners(
		gocron.AfterLockError(skipped),
		gocron.AfterJobRuns(func(uuid.UUID, string) { m.news <- "has run it" }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { m.news <- fmt.Sprint("has stopped it, ", err) }),
	)))
	if err == nil {
		m.scheduler.Start()
	}
	return err
}

// stop is a clean shutdown: the jobs end, then their locks are given back.
func (m *machine) stop() {
	if m.scheduler != nil {
		_ = m.scheduler.Shutdown()
	}
	_ = m.session.Close()
	m.campaign.Wait()
	_ = m.rdb.Close()
}

// report writes what became of a tick.
func (m *machine) report(ctx context.Context, out io.Writer) error {
	select {
	case what := <-m.news:
		fmt.Fprintf(out, "  machine %d %s\n", m.number, what)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tick is what the machine's clock does when the time of the job has come.
func tick() gocron.JobDefinition { return gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()) }

// withLockers has the machines share jobs by lockers.
func withLockers(ctx context.Context, machines []*machine, out io.Writer) error {
	quick := func(context.Context) error { return nil }

	fmt.Fprintln(out, "The clocks differ, so the machines come to a tick of a quick job one after the other.")
	lockers := map[*machine]*locker{}
	for _, m := range machines {
		lockers[m] = newLocker(m.session, m.rdb, time.Minute)
		if err := m.schedule(gocron.WithDistributedLocker(lockers[m])); err != nil {
			return err
		}
	}
	for _, m := range machines {
		if _, err := lockers[m].newJob(m.scheduler, tick(), "quick", quick); err != nil {
			return err
		}
		if err := m.report(ctx, out); err != nil {
			return err
		}
		// Before the next machine has its turn, gocron unlocks the job.
		if err := lockers[m].lock("quick").Do(ctx, quick); err != nil {
			return err
		}
	}

	fmt.Fprintln(out, "A run takes longer than the lease.")
	first, second := machines[0], machines[1]
	began, end := make(chan struct{}), make(chan struct{})
	long := func(ctx context.Context) error {
		close(began)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if _, err := lockers[first].newJob(first.scheduler, tick(), "long", long); err != nil {
		return err
	}
	<-began
	time.Sleep(2 * lease)
	if _, err := lockers[second].newJob(second.scheduler, tick(), "long", quick); err != nil {
		return err
	}
	if err := second.report(ctx, out); err != nil {
		return err
	}
	close(end)
	if err := first.report(ctx, out); err != nil {
		return err
	}

	fmt.Fprintln(out, "An operator frees the lock of a run.")
	began = make(chan struct{})
	end = nil // it would go on indefinitely
	if _, err := lockers[first].newJob(first.scheduler, tick(), "lost", long); err != nil {
		return err
	}
	<-began
	if _, err := lockers[second].lock("lost").ForceUnlock(ctx); err != nil {
		return err
	}
	return first.report(ctx, out)
}

// reporter says which ticks an elector has skipped: gocron has no listener for them.
type reporter struct {
	gocron.Elector
	m *machine
}

func (r reporter) IsLeader(ctx context.Context) error {
	err := r.Elector.IsLeader(ctx)
	if err != nil {
		r.m.news <- "skips it, another machine leads"
	}
	return err
}

// withElectors has one machine run all jobs, and then another one.
func withElectors(ctx context.Context, machines []*machine, out io.Writer) error {
	first, second := machines[0], machines[1]
	firstCtx, resign := context.WithCancel(ctx)
	defer resign()
	ctxs := map[*machine]context.Context{first: firstCtx, second: ctx}
	electors := map[*machine]*elector{first: {}, second: {}}
	for _, m := range machines {
		if err := m.schedule(gocron.WithDistributedElector(reporter{electors[m], m})); err != nil {
			return err
		}
		m.campaign.Go(func() {
			electors[m].campaign(ctxs[m], election.New(m.session, "scheduler"), strconv.Itoa(m.number))
		})
		if err := electors[first].await(ctx); err != nil { // before the second one campaigns
			return err
		}
	}
	tickOfAll := func() error {
		for _, m := range machines {
			work := electors[m].task(func(context.Context) error { return nil })
			if _, err := m.scheduler.NewJob(tick(), gocron.NewTask(work), gocron.WithName("job")); err != nil {
				return err
			}
			if err := m.report(ctx, out); err != nil {
				return err
			}
		}
		return nil
	}

	fmt.Fprintln(out, "Machine 1 is elected.")
	if err := tickOfAll(); err != nil {
		return err
	}
	fmt.Fprintln(out, "Machine 1 resigns.")
	resign()
	if err := electors[second].await(ctx); err != nil {
		return err
	}
	return tickOfAll()
}

// await waits until the elector's machine leads.
func (e *elector) await(ctx context.Context) error {
	for e.IsLeader(ctx) != nil {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// with runs part of the show on some machines.
func with(ctx context.Context, url string, number int, out io.Writer, part func(context.Context, []*machine, io.Writer) error) error {
	var machines []*machine
	for n := range number {
		m, err := newMachine(url, n+1)
		if err != nil {
			return err
		}
		defer m.stop()
		machines = append(machines, m)
	}
	return part(ctx, machines, out)
}

func run(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(with(ctx, url, 3, out, withLockers), with(ctx, url, 2, out, withElectors))
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error { return run(ctx, url, os.Stdout) })
}

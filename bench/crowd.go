package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// crowdOf is the scenario with so many clients that want one lock, as processes do with one goroutine each.
func crowdOf(clients int) scenario {
	const what = "clients x 1 goroutine, 1 lock, 5 ms inside"
	return scenario{
		name: fmt.Sprint("crowd-", clients), family: family{"crowd", what},
		what:  fmt.Sprintf("%d %s; 200 cycles/s are possible", clients, what),
		needs: []need{aLock, crowding, oneServer}, clients: clients, goroutines: 1, critical: 5 * time.Millisecond, run: runCrowd,
	}
}

// quorumCrowdOf is the same on a majority of three servers.
func quorumCrowdOf(clients int) scenario {
	s := crowdOf(clients)
	s.name, s.what = "quorum-"+s.name, "3 servers, "+s.what
	s.family = family{"quorum-" + s.family.name, "3 servers, " + s.family.what}
	s.needs, s.servers = []need{aLock, crowding, majority}, 3
	return s
}

// crowd is a crew whose waits end with the run. Until all have had the lock once more could take minutes.
type crowd struct {
	*crew
	over context.Context
	end  context.CancelFunc
}

func runCrowd(ctx context.Context, b bout) (_ sample, err error) {
	members, err := b.muster(ctx, newName(), new(guard), slices.Repeat([]int{b.goroutines}, b.clients))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, members.disband()) }()
	c := crowd{crew: members}
	c.over, c.end = context.WithCancel(ctx)
	defer c.end()
	c.start()
	if err := b.gathered(ctx); err != nil {
		return sample{}, err
	}
	var before, after effort
	var cpu, cpuAfter time.Duration
	var hasCPU bool
	t, took, err := b.measure(ctx, c, func(bool) (err error) {
		before, cpu = after, cpuAfter
		cpuAfter, hasCPU = cpuTime()
		if !b.foreign && !b.embedded {
			after, err = b.effort(ctx)
		}
		return err
	})
	if err != nil {
		return sample{}, err
	}
	f := t.figures(took)
	// The end does not wait for those that wait, and what one process allocates for all clients says little.
	for _, name := range []string{"stuck", "allocs_per_cycle", "bytes_per_cycle"} {
		delete(f, name)
	}
	f["inside_share"] = min(1, t.Inside.Seconds()/took.Seconds()) // a section that was begun in time may end after it
	f["turn_share"] = t.served() / float64(len(t.Each))
	if hasCPU {
		f.perCycle("cpu_us_per_cycle", micros(cpuAfter-cpu), &t)
	}
	if !b.foreign && !b.embedded {
		f.perCycle("requests_per_cycle", after.requests-before.requests, &t)
		f.perCycle("published_per_cycle", after.published-before.published, &t)
		f.perCycle("server_us_per_cycle", after.micros-before.micros, &t)
		f.perCycle("server_cpu_us_per_cycle", (after.cpu-before.cpu)*1e6, &t)
	}
	return sample{f, &t.Waits}, nil
}

// served is how many goroutines had the lock.
func (t *tally) served() (n float64) {
	for _, cycles := range t.Each {
		if cycles > 0 {
			n++
		}
	}
	return n
}

func (c crowd) start() {
	for _, w := range c.workers {
		c.wg.Go(func() {
			if err := c.work(w); err != nil {
				c.cancel(err)
			}
		})
	}
}

func (c crowd) enter(phase int32) error {
	err := c.crew.enter(phase)
	if phase == stopping {
		c.end()
	}
	return err
}

func (c crowd) work(w *worker) error {
	for c.phase.Load() != stopping {
		if done, err := c.cycle(w); done || err != nil {
			return err
		}
	}
	return nil
}

// cycle is one of w, or its last wait: that ends with the run, and counts as long as it was.
func (c crowd) cycle(w *worker) (done bool, err error) {
	// Not canceled while the lock is held: some libraries give it up then.
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stay := context.AfterFunc(c.over, cancel)
	began := time.Now()
	_, err = w.mutex.lock(ctx)
	waited := time.Since(began)
	if !stay() {
		w.waits.add(waited)
		if err == nil {
			_ = w.mutex.unlock(c.ctx) // it may be lost already
		}
		return true, nil
	}
	if err != nil {
		return true, fmt.Errorf("lock: %w", err)
	}
	at := w.visit()
	if err := w.leave(c.ctx); err != nil {
		return true, err
	}
	w.count(at, waited)
	return false, nil
}

// gatherFor bounds the time in which all begin to wait, where clients and servers have more to do than they can.
const gatherFor = 15 * time.Second

// gathered waits until all clients have begun to wait: each has a connection for its requests on
// each server, and no more connections come.
func (b bout) gathered(ctx context.Context) error {
	if b.foreign {
		return nil
	}
	last, same := 0, 0
	for began := time.Now(); same < 3 && time.Since(began) < gatherFor; {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		all, err := infos(ctx, b.Redis, "clients")
		if err != nil {
			return err
		}
		now := 0
		for _, clients := range all {
			n, err := strconv.Atoi(clients["connected_clients"])
			if err != nil {
				return err
			}
			now += n
		}
		if now == last && now >= b.clients*len(b.Redis) {
			same++
		} else {
			last, same = now, 0
		}
	}
	return nil
}

// effort is what servers have done for clients.
type effort struct {
	requests  float64 // of clients, not what scripts call
	published float64 // messages, also by scripts
	micros    float64 // spent in the requests
	cpu       float64 // seconds of the processes
}

// neverScripted are commands that only clients send.
var neverScripted = []string{"eval", "evalsha", "ping", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"}

func (b bout) effort(ctx context.Context) (e effort, err error) {
	all, err := infos(ctx, b.Redis, "commandstats")
	if err != nil {
		return e, err
	}
	for _, stats := range all {
		calls := func(command string) (n, usec float64, err error) {
			if stat, ok := stats["cmdstat_"+command]; ok {
				_, err = fmt.Sscanf(stat, "calls=%g,usec=%g,", &n, &usec)
			}
			return n, usec, err
		}
		for _, command := range slices.Concat(neverScripted, b.unscripted) {
			n, usec, err := calls(command)
			if err != nil {
				return e, fmt.Errorf("%s: %w", command, err)
			}
			e.requests, e.micros = e.requests+n, e.micros+usec
		}
		for _, command := range []string{"publish", "spublish"} {
			n, _, err := calls(command)
			if err != nil {
				return e, fmt.Errorf("%s: %w", command, err)
			}
			e.published += n
		}
	}
	e.cpu, err = serverCPU(ctx, b.Redis)
	return e, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// patient is how many times the usual time a crowd has: of 300 clients, each has its turn in about 2 s.
const patient = 5

// crowdOf is the scenario with so many clients that want one lock, as processes do with one goroutine each.
func crowdOf(clients int) scenario {
	const what = "clients x 1 goroutine, 1 lock, 5 ms inside"
	return scenario{
		name: fmt.Sprint("crowd-", clients), family: family{"crowd", what},
		what:  fmt.Sprintf("%d %s, for %d times --duration; 200 cycles/s are possible", clients, what, patient),
		needs: []need{aLock, crowding, oneServer}, clients: clients, goroutines: 1, critical: 5 * time.Millisecond, stretch: patient, run: runCrowd,
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
	spent, around := b.metered(ctx)
	t, took, err := b.measure(ctx, c, around)
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
	if b.tells() {
		f.perCycle("requests_per_cycle", spent.requests, &t)
		f.perCycle("published_per_cycle", spent.published, &t)
		f.serverTime(*spent, &t)
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

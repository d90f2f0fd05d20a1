package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// A bout is one run of one contender in one scenario.
type bout struct {
	scenario
	contender
	setup
	window time.Duration // measured time
}

// A bout may take ten times its measured time, and patience in addition.
const patience = 60 * time.Second

var errPatient = errors.New("the run does not end")

// measured runs the bout and returns its figures. If the bout takes too long, its context ends with the cause
// errPatient.
func (b bout) measured(ctx context.Context) (figures, error) {
	// The context has no deadline, because some libraries let leases end at the deadline.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(10*b.window+patience, func() { cancel(errPatient) }).Stop()
	return b.run(ctx, b)
}

// newName returns the name of a new lock. No other run uses this name.
func newName() string { return "lockline-bench:" + uuid.NewString() }

// cycles runs a bout of most scenarios. All goroutines lock and unlock, over and over.
func cycles(ctx context.Context, b bout) (_ figures, err error) {
	c, err := b.muster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.disband()) }()
	c.start()
	if b.crowd {
		if err := b.gathered(ctx); err != nil {
			return nil, err
		}
	}
	spent, meter := b.metered(ctx)
	t, took, err := b.measure(ctx, c, meter)
	if err != nil {
		return nil, err
	}
	f := t.figures(took)
	f.efforts(*spent, t.cycles())
	if b.clients == 1 { // with several clients, the figure would mix their allocations
		f.each("allocs_per_cycle", float64(t.mallocs), t.cycles())
	}
	if b.crowd {
		f["clients"], f["turn_share"] = float64(b.clients), t.served()/float64(len(t.each))
	}
	return f, nil
}

// gatherFor is the longest time for which gathered waits. It is needed because the number of connections may
// never stop changing.
const gatherFor = 15 * time.Second

// gathered waits until all clients have probably begun to wait. It returns when there are at least as many
// connections as clients times servers, and the number of connections has stayed the same for 150 ms. It also
// returns after gatherFor.
func (b bout) gathered(ctx context.Context) error {
	last, same := 0, 0
	for began := time.Now(); same < 3 && time.Since(began) < gatherFor; {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		all, err := infos(ctx, b.redis, "clients")
		if err != nil {
			return err
		}
		now := 0
		for _, clients := range all {
			n, err := strconv.Atoi(clients["connected_clients"])
			if err != nil {
				return fmt.Errorf("connected_clients: %w", err)
			}
			now += n
		}
		if now == last && now >= b.clients*len(b.redis) {
			same++
		} else {
			last, same = now, 0
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

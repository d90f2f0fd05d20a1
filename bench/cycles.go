package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
)

// newName is that of a lock that nothing is left of from another run.
func newName() string { return "lockline-bench:" + uuid.NewString() }

// cycles is the run of most scenarios: all lock and unlock, over and over.
func cycles(ctx context.Context, b bout) (_ sample, err error) {
	near := b
	b, closeProxies, err := b.delayed(ctx)
	defer func() { err = errors.Join(err, closeProxies()) }()
	if err != nil {
		return sample{}, err
	}
	u, dismiss, err := b.users(ctx)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, dismiss()) }()

	spent, around := near.metered(ctx)
	t, took, err := b.measure(ctx, u, around)
	if err != nil {
		return sample{}, err
	}
	f := t.figures(took)
	if b.tells() {
		f.perCycle("server_calls_per_cycle", spent.calls, &t)
		f.serverTime(*spent, &t)
	}
	if b.delay > 0 {
		if f["added_rtt_us"], err = addedTrip(ctx, near.Redis[0], b.Redis[0]); err != nil {
			return sample{}, err
		}
	}
	if b.critical > 0 && b.reads == 0 { // those that read may be inside together, however many
		places, share := 1, "inside_share"
		if b.permits > 0 {
			places, share = b.permits, "permits_share"
		}
		f["possible_per_s"] = float64(places) * possible(b.critical, min(b.window, time.Second))
		f[share] = min(1, t.Inside.Seconds()/(float64(places)*took.Seconds())) // a section that was begun in time may end after it
	}
	return sample{f, &t.Waits}, nil
}

// delayed is the bout behind proxies that delay as its scenario says, if it does.
func (b bout) delayed(ctx context.Context) (_ bout, closeProxies func() error, err error) {
	var proxies []*helper
	if b.delay > 0 {
		b.setup, proxies, err = through(ctx, b.setup, roleDelay, b.delay.String())
	}
	return b, func() error { return closeAll(proxies) }, err
}

// users sets the scenario's to work, in this process or others.
func (b bout) users(ctx context.Context) (users, func() error, error) {
	if b.processes {
		return b.fork(ctx)
	}
	c, err := b.muster(ctx, newName(), new(guard), slices.Repeat([]int{b.goroutines}, b.clients))
	if err != nil {
		return nil, nil, err
	}
	c.start()
	return c, c.disband, nil
}

// possible is how often the critical section fits into a second, timers being what they are in an idle process. In a busy one they are
// later still, whatever the lock: inside_share is what the lock leaves of the time.
func possible(critical, window time.Duration) float64 {
	n := 0
	began := time.Now()
	for time.Since(began) < window {
		spend(critical)
		n++
	}
	return float64(n) / time.Since(began).Seconds()
}

// starve sets a client with many goroutines against one with a single one.
func starve(ctx context.Context, b bout) (_ sample, err error) {
	c, err := b.muster(ctx, newName(), new(guard), []int{b.goroutines, 1})
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, c.disband()) }()
	c.start()
	spent, around := b.metered(ctx)
	t, took, err := b.measure(ctx, c, around)
	if err != nil {
		return sample{}, err
	}
	f := t.figures(took)
	if b.tells() {
		f.serverTime(*spent, &t)
	}
	f.perCycle("lone_share", float64(t.Each[b.goroutines]), &t)
	f.perCycle("crowd_share", float64(t.cycles()-t.Each[b.goroutines]), &t)
	f["lone_wait_max_us"] = micros(t.MaxWaits[b.goroutines])
	return sample{f, &t.Waits}, nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An effort describes the work of clients and servers.
type effort struct {
	requests float64       // number of requests of clients, without the commands that scripts call
	micros   float64       // time that the servers have spent on these requests, in µs
	cpu      time.Duration // CPU time of this process
}

// neverScripted has commands that clients send, but scripts never call. The sum of the times of commands must
// contain only commands of clients, because the time of a script already includes the commands that the
// script calls.
var neverScripted = []string{
	"eval", "evalsha", "ping", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe",
}

// effort returns the effort since the servers and this process were started.
func (b bout) effort(ctx context.Context) (e effort, err error) {
	all, err := infos(ctx, b.redis, "commandstats")
	if err != nil {
		return e, err
	}
	requests := slices.Concat(neverScripted, b.unscripted)
	for _, stats := range all {
		for stat, value := range stats {
			var n, usec float64
			if _, err := fmt.Sscanf(value, "calls=%g,usec=%g,", &n, &usec); err != nil {
				return e, fmt.Errorf("%s: %w", stat, err)
			}
			if slices.Contains(requests, strings.TrimPrefix(stat, "cmdstat_")) {
				e.requests, e.micros = e.requests+n, e.micros+usec
			}
		}
	}
	e.cpu = cpuTime()
	return e, nil
}

// metered returns a function that the caller must call at the start and at the end of the measured time. The
// second call sets spent to the effort since the first call.
func (b bout) metered(ctx context.Context) (spent *effort, meter func() error) {
	spent = new(effort)
	return spent, func() error {
		now, err := b.effort(ctx)
		*spent = effort{now.requests - spent.requests, now.micros - spent.micros, now.cpu - spent.cpu}
		return err
	}
}

// efforts sets the figures of the average effort for a cycle.
func (f figures) efforts(spent effort, cycles int64) {
	f.each("requests_per_cycle", spent.requests, cycles)
	f.each("server_us_per_cycle", spent.micros, cycles)
	f.each("cpu_us_per_cycle", micros(spent.cpu), cycles)
}

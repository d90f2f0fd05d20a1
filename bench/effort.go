package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// effort is what clients and servers have done.
type effort struct {
	requests float64 // of clients, not what scripts call
	micros   float64 // that servers spent in them
	cpu      time.Duration
}

// neverScripted are commands that only clients send. The server tells the time of each command, and that
// of a script has its commands' in it, so only what clients send may be added up.
var neverScripted = []string{
	"eval", "evalsha", "ping", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe",
}

// effort is that since the servers and this process were started.
func (b bout) effort(ctx context.Context) (e effort, err error) {
	all, err := infos(ctx, b.redis, "commandstats")
	if err != nil {
		return e, err
	}
	requests := slices.Concat(neverScripted, b.unscripted)
	for _, stats := range all {
		for stat, told := range stats {
			var n, usec float64
			if _, err := fmt.Sscanf(told, "calls=%g,usec=%g,", &n, &usec); err != nil {
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

// metered is for the beginning and the end of the measured time: between two calls of meter, that effort
// was made.
func (b bout) metered(ctx context.Context) (spent *effort, meter func() error) {
	spent = new(effort)
	return spent, func() error {
		now, err := b.effort(ctx)
		*spent = effort{now.requests - spent.requests, now.micros - spent.micros, now.cpu - spent.cpu}
		return err
	}
}

// efforts sets what a cycle took.
func (f figures) efforts(spent effort, cycles int64) {
	f.each("requests_per_cycle", spent.requests, cycles)
	f.each("server_us_per_cycle", spent.micros, cycles)
	f.each("cpu_us_per_cycle", micros(spent.cpu), cycles)
}

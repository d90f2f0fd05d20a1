package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// effort is what servers have done for clients.
type effort struct {
	calls     float64 // commands, those of scripts included
	requests  float64 // of clients, not what scripts call
	published float64 // messages, also by scripts
	micros    float64 // spent in the requests
	cpu       float64 // seconds of the processes
}

// neverScripted are commands that only clients send. The server tells the time of each command, and that of a script has its
// commands' in it, so only what clients send may be added up.
var neverScripted = []string{"eval", "evalsha", "ping", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"}

// ownCommands are what asking takes.
var ownCommands = []string{"info", "hello", "client|setinfo", "client|maint_notifications"}

// tells says whether the servers can say what they did for the contender.
func (b bout) tells() bool { return !b.foreign && !b.embedded }

// effort is that of the servers since they were started; nothing of those that can't tell.
func (b bout) effort(ctx context.Context) (e effort, err error) {
	if !b.tells() {
		return e, nil
	}
	all, err := infos(ctx, b.Redis, "commandstats")
	if err != nil {
		return e, err
	}
	requests := slices.Concat(neverScripted, b.unscripted)
	for _, stats := range all {
		for stat, told := range stats {
			command := strings.TrimPrefix(stat, "cmdstat_")
			var n, usec float64
			if _, err := fmt.Sscanf(told, "calls=%g,usec=%g,", &n, &usec); err != nil {
				return e, fmt.Errorf("%s: %w", stat, err)
			}
			if !slices.Contains(ownCommands, command) {
				e.calls += n
			}
			if slices.Contains(requests, command) {
				e.requests, e.micros = e.requests+n, e.micros+usec
			}
			if command == "publish" || command == "spublish" {
				e.published += n
			}
		}
	}
	e.cpu, err = serverCPU(ctx, b.Redis)
	return e, err
}

// metered is for measure: between its two calls the servers made that effort.
func (b bout) metered(ctx context.Context) (spent *effort, around func(begin bool) error) {
	spent = new(effort)
	return spent, func(bool) error {
		now, err := b.effort(ctx)
		*spent = now.since(*spent)
		return err
	}
}

func (e effort) since(before effort) effort {
	return effort{e.calls - before.calls, e.requests - before.requests, e.published - before.published, e.micros - before.micros, e.cpu - before.cpu}
}

// serverTime sets what a cycle took of the servers' time.
func (f figures) serverTime(spent effort, t *tally) {
	f.perCycle("server_us_per_cycle", spent.micros, t)
	f.perCycle("server_cpu_us_per_cycle", spent.cpu*1e6, t)
}

// serverCPU is how many seconds the servers have computed.
func serverCPU(ctx context.Context, urls []string) (seconds float64, err error) {
	all, err := infos(ctx, urls, "cpu")
	for _, cpu := range all {
		for _, kind := range []string{"used_cpu_sys", "used_cpu_user"} {
			n, err := strconv.ParseFloat(cpu[kind], 64)
			if err != nil {
				return 0, err
			}
			seconds += n
		}
	}
	return seconds, err
}

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// figures are values by the names of metrics; those that were not measured are missing.
type figures map[string]float64

// metric is a column.
type metric struct {
	name  string
	title string
	show  func(rounds []float64) string
	when  func(all []*result, name string) bool // the column is worth its place
}

// metrics in the order in which they are shown.
var metrics = []metric{
	{"clients", "clients", median(whole), always},
	{"cycles_per_s", "cycles/s", median(whole), always},
	{"cycles_per_s", "of rounds", spread, inRounds},
	{"handoff_p50_us", "hand-over p50", median(readable), always},
	{"handoff_p99_us", "p99", median(readable), always},
	{"handoff_max_us", "max", largest, always},
	{"last_return_p50_us", "last return p50", median(readable), always},
	{"last_return_max_us", "max", largest, always},
	{"wait_p50_us", "wait p50", median(readable), always},
	{"wait_p99_us", "p99", median(readable), always},
	{"wait_max_us", "max", largest, always},
	{"write_p99_us", "writers' p99", median(readable), always},
	{"turn_share", "had a turn", median(ratio), always},
	{"least_share", "least share", median(ratio), always},
	{"requests_per_cycle", "requests/cycle", median(ratio), always},
	{"server_us_per_cycle", "server time/cycle", median(readable), always},
	{"cpu_us_per_cycle", "CPU/cycle", median(readable), always},
	{"allocs_per_cycle", "allocs/cycle", median(whole), always},
	{"requests_per_lock", "requests/lock", median(ratio), always},
	{"cpu_us_per_lock", "CPU/lock", median(readable), always},
	{"bytes_per_lock", "bytes/lock", median(whole), always},
	{"goroutines_per_lock", "goroutines/lock", median(ratio), always},
	{"stuck", "stuck", total, notZero},
	{"lost", "lost", total, notZero},
	{"violations", "violations", total, notZero},
}

// legend says what the columns mean.
const legend = `- *Cycles*: a cycle is a lock and an unlock. Figures are medians of the rounds, ` +
	`but *max* is the
  largest of all. *Of rounds* are the slowest and the fastest.
- *Wait*: from the call of Lock to its return. p99 is exceeded by one wait of 100. In crowds, a wait that the
  end of the run cuts short counts as long as it was.
- *Had a turn*: the part of the clients that had the lock. *Least share*: cycles of the goroutine that had the
  fewest, relative to the mean.
- *Requests* and *server time*: what commandstats reports of the clients' requests, a script with all that
  it calls. Of several servers it is a sum.
- *CPU*, *allocs*, *bytes*: of the process of the clients, this program's own work included. Bytes are heap
  and stacks.
- Some columns stand only where they are not 0. *Stuck* are waiters that had not got the lock 2 s after all
  others were done with it. *Lost* are unlocks that failed. *Violations* are of mutual exclusion.
`

func always(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return len(x.values(name)) > 0 })
}

// inRounds is for the range of some rounds.
func inRounds(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return len(x.values(name)) > 1 })
}

// notZero is for what must be 0.
func notZero(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return sum(x.values(name)) != 0 })
}

// each sets the figure, if there was a cycle.
func (f figures) each(name string, total float64, cycles int64) {
	if cycles > 0 {
		f[name] = total / float64(cycles)
	}
}

// quantiles sets some, if there were any durations.
func (f figures) quantiles(name string, h *hdrhistogram.Histogram) {
	if h.TotalCount() > 0 {
		f[name+"_p50_us"] = nanos(h.ValueAtQuantile(50))
		f[name+"_p99_us"] = nanos(h.ValueAtQuantile(99))
		f[name+"_max_us"] = nanos(h.Max())
	}
}

func medianOf(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// These show one figure of all rounds.

func median(show func(float64) string) func([]float64) string {
	return func(rounds []float64) string { return show(medianOf(rounds)) }
}

func largest(rounds []float64) string { return readable(slices.Max(rounds)) }
func total(rounds []float64) string   { return whole(sum(rounds)) }
func spread(rounds []float64) string {
	return whole(slices.Min(rounds)) + "-" + whole(slices.Max(rounds))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func nanos(ns int64) float64         { return micros(time.Duration(ns)) }

func whole(x float64) string { return fmt.Sprintf("%.0f", x) }
func ratio(x float64) string { return fmt.Sprintf("%.2f", x) }

// readable is a duration in microseconds with about three digits.
func readable(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e4:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case us >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 10:
		return fmt.Sprintf("%.1f us", us)
	}
	return fmt.Sprintf("%.0f us", us)
}

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// figures has the measured values of one bout. The keys are names of metrics.
type figures map[string]float64

// A metric is a column of the tables.
type metric struct {
	name  string // key in figures
	title string // title of the column
	show  func(rounds []float64) string
	when  func(all []*result, name string) bool // reports whether a table with these results has the column
}

// metrics has the columns in the order in which they are shown.
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

// legend explains the columns, for the page.
const legend = `- Figures are medians of the rounds, but *max* is the largest value in any round.
  *Of rounds* has the figures of the slowest and the fastest round.
- *Wait* is the time from the call of Lock to its return. In crowds, the end of the run also ends the waits.
  Each of them counts with its time until then.
- *Had a turn* is the share of the clients that had the lock at least once. *Least share* is the number of
  cycles of the goroutine with the fewest cycles, divided by the mean.
- *Requests* and *server time* are from INFO commandstats, as a sum over all servers. The time of a script
  includes the commands that it calls.
- *CPU*, *allocs* and *bytes* (heap and stacks) are measured in the process with the clients.
- *Stuck*, *lost* and *violations* are columns only in tables in which they are not 0. *Stuck* is the number
  of waiters that did not have the lock 2 s after all others had finished. *Lost* is the number of unlocks
  that failed. *Violations* is the number of violations of mutual exclusion.
`

// always reports whether any result has a value of the metric.
func always(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return len(x.values(name)) > 0 })
}

// inRounds reports whether some result has several rounds, and so a slowest and a fastest one.
func inRounds(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return len(x.values(name)) > 1 })
}

// notZero reports whether a metric that should be 0 has another value in some result.
func notZero(all []*result, name string) bool {
	return slices.ContainsFunc(all, func(x *result) bool { return sum(x.values(name)) != 0 })
}

// each sets a figure to total divided by the number of cycles, if there was a cycle.
func (f figures) each(name string, total float64, cycles int64) {
	if cycles > 0 {
		f[name] = total / float64(cycles)
	}
}

// quantiles sets the figures for the median, the 99th percentile and the maximum of h, if h has values.
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

// The functions below make the text of a cell from the values of all rounds.

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

// readable formats a duration, given in microseconds, with about three digits.
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

package main

import (
	"fmt"
	"slices"
	"time"
)

// metric is something that is measured.
type metric struct {
	name   string // in JSON
	title  string // of a column
	better int    // 1: more is, -1: less is, 0: neither
	merge  func([]float64) float64
	show   func(float64) string
}

// metrics in the order in which they are shown.
var metrics = []metric{
	{"cycles_per_s", "cycles/s", 1, medianOf, whole},
	{"possible_per_s", "possible", 0, medianOf, whole},
	{"inside_share", "time inside", 1, medianOf, ratio},
	{"permits_share", "permits in use", 1, medianOf, ratio},
	{"per_60s", "in 60 s", 1, medianOf, whole},
	{"listed_per_s", "listed/s", 0, medianOf, whole},
	{"retries_per_cycle", "retries/cycle", -1, medianOf, ratio},
	{"handoff_p50_us", "handoff p50", -1, medianOf, readable},
	{"handoff_p99_us", "p99", -1, medianOf, readable},
	{"last_return_p50_us", "last return p50", -1, medianOf, readable},
	{"last_return_p99_us", "p99", -1, medianOf, readable},
	{"last_return_trips", "in round trips", -1, medianOf, ratio},
	{"round_trip_us", "round trip", 0, medianOf, readable},
	{"wait_p50_us", "wait p50", -1, medianOf, readable},
	{"wait_p99_us", "p99", -1, medianOf, readable},
	{"wait_max_us", "max", -1, slices.Max[[]float64], readable},
	{"write_wait_p99_us", "writers' p99", -1, medianOf, readable},
	{"wait_mean_us", "mean", -1, medianOf, readable},
	{"requests_per_s", "requests/s", -1, medianOf, few},
	{"requests_per_cycle", "requests/cycle", -1, medianOf, ratio},
	{"published_per_cycle", "published/cycle", 0, medianOf, ratio},
	{"server_us_per_cycle", "server time/cycle", -1, medianOf, readable},
	{"server_cpu_us_per_cycle", "server CPU/cycle", -1, medianOf, readable},
	{"cpu_us_per_cycle", "clients' CPU/cycle", -1, medianOf, readable},
	{"server_calls_per_cycle", "server calls/cycle", -1, medianOf, ratio},
	{"requests_per_lock", "requests/lock", -1, medianOf, ratio},
	{"cpu_us_per_lock", "CPU/lock", -1, medianOf, readable},
	{"server_cpu_us_per_lock", "server CPU/lock", -1, medianOf, readable},
	{"allocs_per_cycle", "allocs/cycle", -1, medianOf, ratio},
	{"bytes_per_cycle", "bytes/cycle", -1, medianOf, whole},
	{"bytes_per_lock", "bytes/lock", -1, medianOf, whole},
	{"goroutines_per_lock", "goroutines/lock", -1, medianOf, ratio},
	{"left_keys_per_name", "keys left/name", -1, medianOf, ratio},
	{"left_bytes_per_name", "bytes left/name", -1, medianOf, whole},
	{"left_for_us", "left for", 0, medianOf, life},
	{"bytes_per_waiter", "bytes/waiter", -1, medianOf, whole},
	{"goroutines_per_waiter", "goroutines/waiter", -1, medianOf, ratio},
	{"min_share", "least share", 1, medianOf, ratio},
	{"max_share", "most", -1, medianOf, ratio},
	{"turn_share", "had a turn", 1, medianOf, ratio},
	{"crowd_share", "share of the 8", 0, medianOf, ratio},
	{"lone_share", "of the 1", 1, medianOf, ratio},
	{"lone_wait_max_us", "its longest wait", -1, slices.Max[[]float64], readable},
	{"fifo_inversions", "inversions", 0, sum, whole},
	{"fifo_grants", "of grants", 0, sum, whole},
	{"added_rtt_us", "added round trip", 0, medianOf, readable},
	// What must be 0 has no best.
	{"stuck", "stuck", 0, sum, whole},
	{"lost", "lost", 0, sum, whole},
	{"violations", "violations", 0, sum, whole},
}

// figures are values by the names of metrics; those that were not measured are missing.
type figures map[string]float64

// combine makes one of several.
func combine(all []figures) figures {
	one := figures{}
	for _, m := range metrics {
		var values []float64
		for _, f := range all {
			if v, ok := f[m.name]; ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			one[m.name] = m.merge(values)
		}
	}
	return one
}

func medianOf(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// Title heads a column, for templates.
func (m metric) Title() string { return m.title }

func whole(x float64) string { return fmt.Sprintf("%.0f", x) }
func ratio(x float64) string { return fmt.Sprintf("%.2f", x) }

func few(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return whole(x)
}

// life is how long a key lives, in microseconds.
func life(us float64) string {
	if us < 0 {
		return "forever"
	}
	return readable(us)
}

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

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report is the document that --json writes, and the table is made from.
type report struct {
	Machine    machine     `json:"machine"`
	Rounds     int         `json:"rounds"`
	WindowSecs float64     `json:"seconds_per_run"`
	Scenarios  []described `json:"scenarios"`
	Contenders []described `json:"contenders"`
	Absent     []absent    `json:"absent,omitempty"`
	Results    []*result   `json:"results"`
}

type machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	Server string `json:"server"`
}

type described struct {
	Name    string `json:"name"`
	What    string `json:"what,omitempty"`
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
}

// absent is who takes no part where, and why.
type absent struct {
	Scenario  string `json:"scenario"`
	Contender string `json:"contender"`
	Reason    string `json:"reason"`
}

// figures are measured in a run. Over several runs they are medians, but for
// WaitMax, the largest of all, and Stuck and Violations, the sums.
type figures struct {
	CyclesPerS     float64  `json:"cycles_per_s"`
	WaitP50        float64  `json:"wait_p50_us"`
	WaitP99        float64  `json:"wait_p99_us"`
	WaitMax        float64  `json:"wait_max_us"`
	AllocsPerCycle float64  `json:"allocs_per_cycle"`
	BytesPerCycle  float64  `json:"bytes_per_cycle"`
	MinShare       *float64 `json:"min_share,omitempty"` // where there is more than one goroutine
	MaxShare       *float64 `json:"max_share,omitempty"`
	Stuck          int      `json:"stuck"` // waiters, see sample
	Violations     int64    `json:"violations"`
}

type result struct {
	Scenario  string `json:"scenario"`
	Contender string `json:"contender"`
	figures
	Rounds []figures `json:"rounds"`
}

func newReport(redisVersion, server string, rounds int, window time.Duration) *report {
	return &report{
		Machine:    machine{runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), redisVersion, server},
		Rounds:     rounds,
		WindowSecs: window.Seconds(),
		Results:    []*result{},
	}
}

// describe says what will run, and what will not.
func (r *report) describe(scenarios []scenario, contenders []contender) {
	for _, c := range contenders {
		r.Contenders = append(r.Contenders, described{Name: c.name, Module: c.module, Version: c.version(), Config: c.config})
	}
	for _, s := range scenarios {
		r.Scenarios = append(r.Scenarios, described{Name: s.name, What: s.what})
		for _, c := range contenders {
			if reason := c.absence(s); reason != "" {
				r.Absent = append(r.Absent, absent{s.name, c.name, reason})
			} else {
				r.Results = append(r.Results, &result{Scenario: s.name, Contender: c.name})
			}
		}
	}
}

// add takes the result of one run.
func (r *report) add(s scenario, c contender, m sample) {
	f := figures{
		CyclesPerS:     m.cycles,
		WaitP50:        micros(m.p50),
		WaitP99:        micros(m.p99),
		WaitMax:        micros(m.max),
		AllocsPerCycle: m.allocs,
		BytesPerCycle:  m.bytes,
		Stuck:          m.stuck,
		Violations:     m.violations,
	}
	if s.contended() {
		f.MinShare, f.MaxShare = &m.minShare, &m.maxShare
	}
	for _, x := range r.Results {
		if x.Scenario == s.name && x.Contender == c.name {
			x.Rounds = append(x.Rounds, f)
		}
	}
}

// finish makes one of all rounds.
func (r *report) finish() {
	for _, x := range r.Results {
		x.figures = figures{
			CyclesPerS:     x.median(func(f figures) float64 { return f.CyclesPerS }),
			WaitP50:        x.median(func(f figures) float64 { return f.WaitP50 }),
			WaitP99:        x.median(func(f figures) float64 { return f.WaitP99 }),
			AllocsPerCycle: x.median(func(f figures) float64 { return f.AllocsPerCycle }),
			BytesPerCycle:  x.median(func(f figures) float64 { return f.BytesPerCycle }),
		}
		for _, f := range x.Rounds {
			x.WaitMax = max(x.WaitMax, f.WaitMax)
			x.Stuck += f.Stuck
			x.Violations += f.Violations
		}
		if x.Rounds[0].MinShare != nil {
			least := x.median(func(f figures) float64 { return *f.MinShare })
			most := x.median(func(f figures) float64 { return *f.MaxShare })
			x.MinShare, x.MaxShare = &least, &most
		}
	}
}

func (x *result) median(of func(figures) float64) float64 {
	var all []float64
	for _, f := range x.Rounds {
		all = append(all, of(f))
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func (r *report) violations() (n int64) {
	for _, x := range r.Results {
		n += x.Violations
	}
	return n
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) writeTable(out io.Writer) error {
	m := r.Machine
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s/%s, %d cores, %s, Redis %s (%s)\n", m.OS, m.Arch, m.Cores, m.Go, m.Redis, m.Server)
	fmt.Fprintf(w, "%d rounds, %v each run; medians, but wait max is the largest of all rounds, stuck and violations are sums\n\n",
		r.Rounds, time.Duration(r.WindowSecs*float64(time.Second)))
	for _, c := range r.Contenders {
		fmt.Fprintf(w, "%s\t%s %s\n\t%s\n", c.Name, c.Module, c.Version, c.Config)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(out, "\n%s: %s\n", s.Name, s.What)
		fmt.Fprintln(w, "contender\tcycles/s\twait p50\tp99\tmax\tleast share\tmost\tallocs/cycle\tbytes/cycle\tstuck\tviolations\t")
		for _, x := range r.Results {
			if x.Scenario != s.Name {
				continue
			}
			fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.0f\t%d\t%d\t\n", x.Contender, x.CyclesPerS,
				readable(x.WaitP50), readable(x.WaitP99), readable(x.WaitMax), share(x.MinShare), share(x.MaxShare),
				x.AllocsPerCycle, x.BytesPerCycle, x.Stuck, x.Violations)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, a := range r.Absent {
			if a.Scenario == s.Name {
				fmt.Fprintf(out, "  without %s: %s\n", a.Contender, a.Reason)
			}
		}
	}
	_, err := fmt.Fprintln(out, "\nwait: from the call of Lock to its return. share: cycles of one goroutine, relative to the mean."+
		"\nallocs, bytes: of the whole program, libraries' background work included."+
		fmt.Sprintf("\nstuck: waiters that had not got the lock %v after everybody else was done with it.", drainFor))
	return err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// readable is a duration in microseconds with about three digits.
func readable(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e4:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case us >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f us", us)
}

func share(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *x)
}

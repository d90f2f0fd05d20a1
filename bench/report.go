package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// report is the document that --json writes, and all else is made from.
type report struct {
	Machine    machine     `json:"machine"`
	Run        settings    `json:"run"`
	Scenarios  []described `json:"scenarios"`
	Contenders []described `json:"contenders"`
	Absent     []absent    `json:"absent,omitempty"`
	Results    []*result   `json:"results"`
}

type machine struct {
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	CPU      string `json:"cpu,omitempty"`
	Cores    int    `json:"cores"`
	Go       string `json:"go"`
	Redis    string `json:"redis"`
	Server   string `json:"server"`
	Embedded bool   `json:"embedded,omitempty"`
}

type settings struct {
	Command string  `json:"command"`
	Day     string  `json:"day"` // on which it began, in UTC
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"duration_s"`
}

type described struct {
	Name    string `json:"name"`
	What    string `json:"what,omitempty"`
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
}

// absent is which contender takes no part where, or what is not measured there, and why.
type absent struct {
	Scenario  string `json:"scenario"`
	Contender string `json:"contender"`
	Reason    string `json:"reason"`
}

// result is one contender's in one scenario.
type result struct {
	scenario  scenario
	contender contender
	figures   // over all rounds, and those of the rounds of their own
	rounds    []figures
	extra     []figures
	waits     histogram
	waited    bool
	failed    error // it takes part no more
}

// MarshalJSON puts the figures beside the names, in the order of metrics.
func (r *result) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"scenario":%q,"contender":%q`, r.scenario.name, r.contender.name)
	for _, m := range metrics {
		if v, ok := r.figures[m.name]; ok {
			n, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			fmt.Fprintf(&b, `,%q:%s`, m.name, n)
		}
	}
	rounds, err := json.Marshal(r.rounds)
	fmt.Fprintf(&b, `,"rounds":%s}`, rounds)
	return b.Bytes(), err
}

func newReport(at *site, args []string, rounds int, window time.Duration) *report {
	command := []string{"go run ./bench"}
	for _, a := range args {
		command = append(command, quoted(a))
	}
	return &report{
		Machine: machine{runtime.GOOS, runtime.GOARCH, cpuModel(), runtime.NumCPU(), runtime.Version(), at.version, at.origin, at.embedded},
		Run:     settings{strings.Join(command, " "), time.Now().UTC().Format(time.DateOnly), rounds, window.Seconds()},
		Results: []*result{},
	}
}

// quoted is an argument as a shell takes it.
func quoted(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_=.,:/@%+", c)
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// cpuModel is what Linux calls it.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
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
				r.Results = append(r.Results, &result{scenario: s, contender: c, figures: figures{}})
			}
		}
	}
}

// of are the results of one scenario.
func (r *report) of(scenario string) (some []*result) {
	for _, x := range r.Results {
		if x.scenario.name == scenario && x.failed == nil {
			some = append(some, x)
		}
	}
	return some
}

// finish makes one of all rounds.
func (r *result) finish() {
	r.figures = combine(r.rounds)
	for name, v := range combine(r.extra) {
		if v0, both := r.figures[name]; both { // what must be 0 is looked at everywhere
			v += v0
		}
		r.figures[name] = v
	}
}

func (r *report) violations() (n float64) {
	for _, x := range r.Results {
		n += x.figures["violations"]
	}
	return n
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// table is what people read of one scenario.
type table struct {
	Name, What string
	Columns    []metric
	Rows       []row
	Notes      []string
}

type row struct {
	Contender string
	Cells     []cell
}

type cell struct {
	Text string
	Best bool // of its column, floors aside
}

// tables are of all columns, or of those that a page has which is read as a whole.
func (r *report) tables(brief bool) (all []table) {
	for _, s := range r.Scenarios {
		results := r.of(s.Name)
		t := table{Name: s.Name, What: s.What}
		for _, m := range metrics {
			has := func(x *result) bool { _, ok := x.figures[m.name]; return ok }
			if slices.ContainsFunc(results, has) && !(brief && omitted(m, results)) {
				t.Columns = append(t.Columns, m)
			}
		}
		best := map[string]float64{}
		for _, m := range t.Columns {
			if x := leader(results, m, func(x *result) bool { return !x.contender.floor }); x != nil {
				best[m.name] = x.figures[m.name]
			}
		}
		for _, x := range results {
			line := row{Contender: x.contender.name}
			for _, m := range t.Columns {
				c := cell{Text: "-"}
				if v, ok := x.figures[m.name]; ok {
					b, any := best[m.name]
					c = cell{m.show(v), any && v == b && !x.contender.floor}
				}
				line.Cells = append(line.Cells, c)
			}
			t.Rows = append(t.Rows, line)
		}
		if brief {
			t.Notes = ratios(results, compared(t.Columns))
		} else {
			t.Notes = append(ratios(results, t.Columns), r.absences(s.Name)...)
		}
		t.Notes = append(t.Notes, r.notes(s.Name, results)...)
		all = append(all, t)
	}
	return all
}

// leader is the best in m of those that are eligible; nil if m has no better or worse.
func leader(results []*result, m metric, eligible func(*result) bool) (first *result) {
	if m.better == 0 {
		return nil
	}
	for _, x := range results {
		v, ok := x.figures[m.name]
		if ok && eligible(x) && (first == nil || float64(m.better)*v > float64(m.better)*first.figures[m.name]) {
			first = x
		}
	}
	return first
}

// ratios compares ours with the best other library in each column.
func ratios(results []*result, columns []metric) (lines []string) {
	for _, x := range results {
		if !x.contender.ours() {
			continue
		}
		floor := slices.IndexFunc(results, func(x *result) bool { return x.contender.floor })
		for _, m := range columns[:min(1, len(columns))] {
			if v, ok := x.figures[m.name]; ok && floor >= 0 && results[floor].figures[m.name] > 0 {
				lines = append(lines, fmt.Sprintf("%s to %s: %s %s x", x.contender.name, results[floor].contender.name, m.title, times(v/results[floor].figures[m.name])))
			}
		}
		var parts []string
		for _, m := range columns {
			other := leader(results, m, func(x *result) bool { return !x.contender.ours() && !x.contender.floor })
			v, ok := x.figures[m.name]
			if ok && other != nil && v > 0 && other.figures[m.name] > 0 {
				parts = append(parts, fmt.Sprintf("%s %s x %s", m.title, times(v/other.figures[m.name]), other.contender.name))
			}
		}
		if len(parts) > 0 {
			lines = append(lines, fmt.Sprintf("%s to the best other library: %s", x.contender.name, strings.Join(parts, ", ")))
		}
	}
	return lines
}

// times is a ratio with two digits or more.
func times(ratio float64) string {
	switch {
	case ratio >= 10:
		return whole(ratio)
	case ratio >= .1 || ratio == 0:
		return fmt.Sprintf("%.2f", ratio)
	}
	return strconv.FormatFloat(ratio, 'f', max(2, 1-int(math.Floor(math.Log10(ratio)))), 64)
}

func (r *report) notes(scenario string, results []*result) (lines []string) {
	for name, published := range book {
		if strings.HasPrefix(scenario, name+"-") {
			lines = append(lines, "the book publishes, in 60 s on its machine: "+published)
		}
	}
	lines = append(lines, r.steadiness(results)...)
	for _, x := range results {
		if n := x.contender.locks; n > 1 {
			lines = append(lines, fmt.Sprintf("%s: takes %d locks where the others take one", x.contender.name, n))
		}
		if x.contender.foreign && x.scenario.counted {
			lines = append(lines, fmt.Sprintf("%s: its protocol is not RESP, so its requests, server calls, server time and inversions are not counted", x.contender.name))
		}
	}
	return lines
}

func (r *report) absences(scenario string) (lines []string) {
	var reasons []string
	who := map[string][]string{}
	for _, a := range r.Absent {
		if a.Scenario != scenario {
			continue
		}
		if who[a.Reason] == nil {
			reasons = append(reasons, a.Reason)
		}
		who[a.Reason] = append(who[a.Reason], a.Contender)
	}
	for _, reason := range reasons {
		lines = append(lines, fmt.Sprintf("without %s: %s", strings.Join(who[reason], ", "), reason))
	}
	return lines
}

// steadiness says which contenders had further rounds, and whose order is unclear all the same.
func (r *report) steadiness(results []*result) (lines []string) {
	var further, still []string
	for _, x := range results {
		if n := len(x.rounds); n > r.Run.Rounds {
			further = append(further, fmt.Sprintf("%s %d", x.contender.name, n))
		}
	}
	if len(further) > 0 {
		lines = append(lines, "their order was unclear, so they had more rounds, which max and sums are of, too: "+strings.Join(further, ", "))
	}
	for _, x := range unsteady(results) {
		p := x.pace()
		still = append(still, fmt.Sprintf("%s %.0f to %.0f", x.contender.name, p.low, p.high))
	}
	if len(still) > 0 {
		lines = append(lines, fmt.Sprintf("unsteady still: there is no order where these ranges overlap, in which the medians of cycles/s lie at %.0f %%: %s", 100*sure, strings.Join(still, ", ")))
	}
	return lines
}

func (r *report) heading() string {
	m := r.Machine
	return fmt.Sprintf("%s/%s, %d cores%s, %s, Redis %s (%s)\n%s",
		m.OS, m.Arch, m.Cores, m.cpu(), m.Go, m.Redis, m.Server, r.rounds())
}

// rounds says what a figure is made of.
func (r *report) rounds() string {
	s := "s"
	if r.Run.Rounds == 1 {
		s = ""
	}
	return fmt.Sprintf("%d round%s, or more where notes say so, %v each run; medians, but max is the largest of all rounds, and counts of inversions, stuck, lost and violations are sums",
		r.Run.Rounds, s, time.Duration(r.Run.Seconds*float64(time.Second)))
}

// cpu follows on the number of cores.
func (m machine) cpu() string {
	if m.CPU == "" {
		return ""
	}
	return ", " + m.CPU
}

func (r *report) writeTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", r.heading())
	for _, c := range r.Contenders {
		fmt.Fprintf(w, "%s\t%s %s\n\t%s\n", c.Name, c.Module, c.Version, c.Config)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range r.tables(false) {
		w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(out, "\n%s: %s\n", t.Name, t.What)
		fmt.Fprint(w, "contender\t")
		for _, m := range t.Columns {
			fmt.Fprintf(w, "%s\t", m.title)
		}
		fmt.Fprintln(w)
		for _, line := range t.Rows {
			fmt.Fprintf(w, "%s\t", line.Contender)
			for _, c := range line.Cells {
				mark := " "
				if c.Best {
					mark = "*"
				}
				fmt.Fprintf(w, "%s%s\t", c.Text, mark)
			}
			fmt.Fprintln(w)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, n := range t.Notes {
			fmt.Fprintf(out, "  %s\n", n)
		}
	}
	fmt.Fprintln(out)
	for _, l := range legend {
		if _, err := fmt.Fprintf(out, "%s: %s\n", l.Term, l.Meaning); err != nil {
			return err
		}
	}
	return nil
}

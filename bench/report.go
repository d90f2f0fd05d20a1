package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// report is what ran, and what was measured.
type report struct {
	command    string
	day        string // on which it began, in UTC
	version    string // of Redis
	origin     string // of the server
	rounds     int
	window     time.Duration
	scenarios  []scenario
	contenders []contender
	results    []*result
}

// result is one contender's in one scenario.
type result struct {
	scenario  scenario
	contender contender
	rounds    []figures
	failed    error // it takes part no more
}

// newReport has a result for all that will run.
func newReport(
	at *site, args []string, rounds int, window time.Duration, some []scenario, who []contender,
) *report {
	r := &report{
		command: strings.Join(append([]string{"go run ./bench"}, args...), " "),
		day:     time.Now().UTC().Format(time.DateOnly),
		version: at.version, origin: at.origin, rounds: rounds, window: window, scenarios: some,
	}
	for _, s := range some {
		for _, c := range who {
			if slices.Contains(s.who, c.name) {
				r.results = append(r.results, &result{scenario: s, contender: c})
			}
		}
	}
	r.contenders = slices.DeleteFunc(slices.Clone(who), func(c contender) bool {
		return !slices.ContainsFunc(r.results, func(x *result) bool { return x.contender.name == c.name })
	})
	return r
}

// of are the results of one scenario; of one size, if it has several.
func (r *report) of(s scenario) (some []*result) {
	for _, x := range r.results {
		if x.scenario.name == s.name && x.scenario.clients == s.clients {
			some = append(some, x)
		}
	}
	return some
}

// named are the results of a scenario in all its sizes.
func (r *report) named(name string) (some []*result) {
	for _, x := range r.results {
		if x.scenario.name == name {
			some = append(some, x)
		}
	}
	return some
}

// values are those of all rounds.
func (x *result) values(name string) (all []float64) {
	for _, f := range x.rounds {
		if v, ok := f[name]; ok {
			all = append(all, v)
		}
	}
	return all
}

func (r *report) violations() (n float64) {
	for _, x := range r.results {
		n += sum(x.values("violations"))
	}
	return n
}

// brief makes the command of the page take seconds: the check of the documentation puts it behind.
const brief = "--scenarios solo,crowd,quorum-solo --contenders rlock,redlock,redsync " +
	"--rounds 1 --duration 50ms"

// write writes a page in Markdown that needs no hand.
func (r *report) write(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# Measurements\n\n" +
		"This command wrote the page. Run it again to have figures of your machine. " +
		"[Performance](performance.md) explains them, and [the comparison](comparison.md) says which lock " +
		"to take.\n\n")
	fmt.Fprintf(&b, "<!-- check: %s -->\n```sh\n%s\n```\n\n", brief, r.command)
	fmt.Fprintf(&b, "On %s, with %s on %s/%s, %d cores%s, and Redis %s, %s. ", r.day,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(), r.version, r.origin)
	fmt.Fprintf(&b, "Each contender was measured for %v in each scenario, in each of %d rounds. "+
		"Crowds and held locks had one round. Compare within a table, not with other machines.\n\n",
		r.window, r.rounds)
	b.WriteString("## Contenders\n\n")
	var rows [][]string
	for _, c := range r.contenders {
		rows = append(rows, []string{c.name, c.module + " " + c.version(), c.config})
	}
	if err := writeTable(&b, tw.AlignLeft, []string{"", "version", "set up"}, rows); err != nil {
		return err
	}
	b.WriteString("\nThose of Lockline have a session for each client, with all defaults: " +
		"a lease of 15 s, renewed at a third of it.\n")
	fmt.Fprintf(&b, "\n## Columns\n\n%s", legend)
	last := ""
	for _, s := range r.scenarios {
		if s.name == last {
			continue
		}
		last = s.name
		if err := writeResults(&b, s, r.named(s.name)); err != nil {
			return err
		}
	}
	_, err := b.WriteTo(w)
	return err
}

func writeResults(b *bytes.Buffer, s scenario, all []*result) error {
	header := []string{""}
	var columns []metric
	for _, m := range metrics {
		if m.when(all, m.name) {
			columns, header = append(columns, m), append(header, m.title)
		}
	}
	var rows [][]string
	var notes strings.Builder
	for _, x := range all {
		if x.failed != nil {
			why := strings.ReplaceAll(x.failed.Error(), "\n", "; ")
			fmt.Fprintf(&notes, "\nWithout %s, which failed: %s\n", x.contender.name, why)
			continue
		}
		row := []string{x.contender.name}
		for _, m := range columns {
			if values := x.values(m.name); len(values) > 0 {
				row = append(row, m.show(values))
			} else {
				row = append(row, "-")
			}
		}
		rows = append(rows, row)
	}
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n", s.name, s.what)
	err := writeTable(b, tw.AlignRight, header, rows)
	b.WriteString(notes.String())
	return err
}

func writeTable(w io.Writer, align tw.Align, header []string, rows [][]string) error {
	t := tablewriter.NewTable(w, tablewriter.WithRenderer(renderer.NewMarkdown()),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignment(align), tablewriter.WithRowAlignment(align))
	t.Header(header)
	if err := t.Bulk(rows); err != nil {
		return err
	}
	return t.Render()
}

// cpuModel is what Linux calls it, to follow on the number of cores.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return " of " + strings.TrimSpace(v)
		}
	}
	return ""
}

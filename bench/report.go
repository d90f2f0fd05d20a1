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

// A report has the settings and the figures of one run of the program.
type report struct {
	command    string
	day        string // day on which the run began, in UTC
	version    string // version of Redis
	origin     string // words on the page that say who has started the server
	rounds     int
	window     time.Duration
	scenarios  []scenario
	contenders []contender
	results    []*result
}

// A result has the figures of one contender in one scenario.
type result struct {
	scenario  scenario
	contender contender
	rounds    []figures
	failed    error // the error after which the contender was left out; nil: it was not left out
}

// newReport returns a report with an empty result for each contender in each scenario that will run.
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

// of returns the results of the scenario s. If s is a crowd, results of crowds with other sizes are left out.
func (r *report) of(s scenario) (some []*result) {
	for _, x := range r.results {
		if x.scenario.name == s.name && x.scenario.clients == s.clients {
			some = append(some, x)
		}
	}
	return some
}

// named returns the results of all scenarios with this name. Only crowds of different sizes share a name.
func (r *report) named(name string) (some []*result) {
	for _, x := range r.results {
		if x.scenario.name == name {
			some = append(some, x)
		}
	}
	return some
}

// values returns the values of the metric name in all rounds that have a value.
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

// brief has options with which the command on the page takes only some seconds. The check of the
// documentation (tools/docs) appends these options to the command.
const brief = "--scenarios solo,crowd,quorum-solo --contenders rlock,redlock,redsync " +
	"--rounds 1 --duration 50ms"

// write writes the page docs/measurements.md to w. The whole page is generated, so its text is here.
func (r *report) write(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# Measurements\n\n" +
		"The following command has written this page. If you run it, it writes the page again with " +
		"the figures of your machine. " +
		"[Performance](performance.md) explains the scenarios and the figures, and says " +
		"[how far to trust them](performance.md#how-far-to-trust-it).\n\n")
	fmt.Fprintf(&b, "<!-- check: %s -->\n```sh\n%s\n```\n\n", brief, r.command)
	fmt.Fprintf(&b, "The command ran on %s, with %s on %s/%s, %d cores%s, and Redis %s, %s. "+
		"Each figure is from %d rounds of %v, unless the scenario names another time.\n\n",
		r.day, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(),
		r.version, r.origin, r.rounds, r.window)
	b.WriteString("## Contenders\n\n" +
		"Contenders of Lockline have one session for each client. All clients and sessions have the " +
		"default options, if the list does not name others.\n\n")
	for _, c := range r.contenders {
		library := ""
		if !c.ours() {
			library = fmt.Sprintf(" (%s %s)", strings.TrimPrefix(c.module, "github.com/"), c.version())
		}
		fmt.Fprintf(&b, "- *%s*%s: %s\n", c.name, library, c.config)
	}
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
	err := writeTable(b, header, rows)
	b.WriteString(notes.String())
	return err
}

func writeTable(w io.Writer, header []string, rows [][]string) error {
	t := tablewriter.NewTable(w, tablewriter.WithRenderer(renderer.NewMarkdown()),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignment(tw.AlignRight), tablewriter.WithRowAlignment(tw.AlignRight))
	t.Header(header)
	if err := t.Bulk(rows); err != nil {
		return err
	}
	return t.Render()
}

// cpuModel returns the text " of " and the name of the processor, which the page has after the number of
// cores. It returns "" if the name is not known, as on systems other than Linux.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return " of " + strings.TrimSpace(v)
		}
	}
	return ""
}

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// minor are columns that the page in Markdown leaves out: it has to be read. JSON, HTML and the terminal have all.
var minor = []string{"server_calls_per_cycle", "bytes_per_cycle", "added_rtt_us"}

// faulty are columns that the page has only where one of their figures is not 0.
var faulty = []string{"stuck", "lost", "violations"}

// telling are the columns whose ratios the page tells, beside the first.
var telling = []string{"wait_p99_us", "requests_per_cycle", "bytes_per_waiter", "bytes_per_lock"}

// omitted says that the page goes without a column.
func omitted(m metric, results []*result) bool {
	wrong := func(x *result) bool { return x.figures[m.name] != 0 }
	return slices.Contains(minor, m.name) || slices.Contains(faulty, m.name) && !slices.ContainsFunc(results, wrong)
}

// compared are the columns whose ratios the page tells.
func compared(columns []metric) (some []metric) {
	for i, m := range columns {
		if i == 0 || slices.Contains(telling, m.name) {
			some = append(some, m)
		}
	}
	return some
}

// overSizes are the columns of the table over the sizes of a family.
var overSizes = []string{"cycles_per_s", "wait_p99_us", "turn_share", "requests_per_cycle"}

// brief makes the command of the page take seconds: the check of the documentation puts it behind.
const brief = "--scenarios solo,quorum-solo --contenders rlock,redlock,redsync --rounds 1 --duration 50ms --redis '' --compare ''"

// writeMarkdown writes a page that needs no hand.
func (r *report) writeMarkdown(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# Measurements\n\nThis command wrote the page. Run it again to have figures of your machine. [Performance](performance.md) explains them, and [the comparison](comparison.md) says which lock to take.\n\n")
	fmt.Fprintf(&b, "<!-- check: %s -->\n```sh\n%s\n```\n\n", brief, r.Run.Command)
	r.markdownOfRun(&b)
	tables := r.tables(true)
	r.markdownSummary(&b, tables)
	last := ""
	for _, t := range tables {
		level := "##"
		if kin := r.kin(t.Name); len(kin) > 0 {
			if f := kin[0].scenario.family; f.name != last {
				last = f.name
				markdownOfFamily(&b, f, kin)
			}
			level = "###"
		}
		fmt.Fprintf(&b, "%s %s\n\n%s.\n\n", level, t.Name, t.What)
		header := []string{""}
		for _, m := range t.Columns {
			header = append(header, m.title)
		}
		var rows [][]string
		for _, line := range t.Rows {
			cells := []string{line.Contender}
			for _, c := range line.Cells {
				if c.Best {
					c.Text = "**" + c.Text + "**"
				}
				cells = append(cells, c.Text)
			}
			rows = append(rows, cells)
		}
		markdownTable(&b, numbers, header, rows)
		for _, n := range t.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
		if len(t.Notes) > 0 {
			fmt.Fprintln(&b)
		}
	}
	b.WriteString("## Columns\n\n")
	for _, l := range legend {
		fmt.Fprintf(&b, "- *%s*: %s\n", l.Term, l.Meaning)
	}
	_, err := b.WriteTo(w)
	return err
}

// markdownOfRun says what ran where, and what took no part.
func (r *report) markdownOfRun(b *bytes.Buffer) {
	m := r.Machine
	markdownTable(b, words, []string{"", ""}, [][]string{
		{"day", r.Run.Day},
		{"machine", fmt.Sprintf("%s/%s, %d cores%s", m.OS, m.Arch, m.Cores, m.cpu())},
		{"Go", m.Go},
		{"server", fmt.Sprintf("Redis %s (%s)", m.Redis, m.Server)},
		{"rounds", r.rounds()},
	})
	b.WriteString("Compare within a table, not with other machines. Where two contenders are 1.15 apart or more and their rounds do not bear that out, they had further rounds. A note names those whose order stays unclear. " +
		"[Columns](#columns) says what the columns mean. Those for waiters that were *stuck*, unlocks that were *lost* and *violations* of mutual exclusion stand only where they are not 0.\n\n## Contenders\n\n")
	var rows [][]string
	for _, c := range r.Contenders {
		var reasons []string
		for _, a := range r.Absent {
			if a.Contender == c.Name && !slices.Contains(reasons, a.Reason) {
				reasons = append(reasons, a.Reason)
			}
		}
		rows = append(rows, []string{c.Name, strings.TrimSpace(c.Module + " " + c.Version), c.Config, cmp.Or(strings.Join(reasons, "; "), "-")})
	}
	markdownTable(b, words, []string{"", "version", "set up", "not in some scenarios, since"}, rows)
}

// markdownSummary compares ours with the best other library in the first column of each table.
func (r *report) markdownSummary(b *bytes.Buffer, tables []table) {
	header := []string{"", "column", "the best other library"}
	var ours []string
	for _, c := range r.Contenders {
		if c.Module == ownModule {
			ours = append(ours, c.Name)
		}
	}
	var rows [][]string
	for _, t := range tables {
		results := r.of(t.Name)
		if len(t.Columns) == 0 {
			continue
		}
		m := t.Columns[0]
		best := leader(results, m, func(x *result) bool { return !x.contender.ours() && !x.contender.floor })
		if best == nil || best.figures[m.name] == 0 {
			continue
		}
		row := []string{fmt.Sprintf("[%s](#%s)", t.Name, t.Name), metricTitle(m), fmt.Sprintf("%s: %s", best.contender.name, m.show(best.figures[m.name]))}
		for _, name := range ours {
			text := "-"
			for _, x := range results {
				if v, ok := x.figures[m.name]; ok && x.contender.name == name {
					text = times(v/best.figures[m.name]) + " x"
				}
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	if len(ours) == 0 || len(rows) == 0 {
		return
	}
	b.WriteString("## Summary\n\nWhat Lockline has in the first column of each table, as a multiple of what the best other library has. Of cycles more is better, of `handoff`, `latch`, requests and CPU less.\n\n")
	markdownTable(b, numbers, append(header, ours...), rows)
}

// kin are the results of the family that a scenario belongs to; nil if the others of it did not run.
func (r *report) kin(scenario string) (kin []*result) {
	some := r.of(scenario)
	if len(some) == 0 || some[0].scenario.family == (family{}) {
		return nil
	}
	others := false
	for _, x := range r.Results {
		if x.scenario.family == some[0].scenario.family {
			kin = append(kin, x)
			others = others || x.scenario.name != scenario
		}
	}
	if !others {
		return nil
	}
	return kin
}

// markdownOfFamily puts some columns of its tables side by side.
func markdownOfFamily(b *bytes.Buffer, f family, kin []*result) {
	var who []string
	var sizes []int
	for _, x := range kin {
		if !slices.Contains(who, x.contender.name) {
			who = append(who, x.contender.name)
		}
		if !slices.Contains(sizes, x.scenario.clients) {
			sizes = append(sizes, x.scenario.clients)
		}
	}
	header, rows := []string{"clients"}, make([][]string, len(who))
	for i, name := range who {
		rows[i] = []string{name}
	}
	for _, m := range metrics {
		has := func(x *result) bool { _, ok := x.figures[m.name]; return ok }
		if !slices.Contains(overSizes, m.name) || !slices.ContainsFunc(kin, has) {
			continue
		}
		for j, n := range sizes {
			title := fmt.Sprint(n)
			if j == 0 {
				title = fmt.Sprintf("%s: %d", metricTitle(m), n)
			}
			header = append(header, title)
			for i, name := range who {
				text := "-"
				for _, x := range kin {
					if v, ok := x.figures[m.name]; ok && x.contender.name == name && x.scenario.clients == n {
						text = m.show(v)
					}
				}
				rows[i] = append(rows[i], text)
			}
		}
	}
	fmt.Fprintf(b, "## %s\n\n%s, over the number of clients.\n\n", f.name, f.what)
	markdownTable(b, numbers, header, rows)
}

// metricTitle is one that stands apart from the column before.
func metricTitle(m metric) string {
	if m.title == "p99" {
		return "wait p99"
	}
	return m.title
}

// How cells are aligned.
const (
	words   = "---|"
	numbers = "--:|"
)

func markdownTable(b *bytes.Buffer, align string, header []string, rows [][]string) {
	for i, line := range append([][]string{header}, rows...) {
		for _, cell := range line {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell, "|", `\|`))
		}
		b.WriteString("|\n")
		if i == 0 {
			fmt.Fprintf(b, "|---|%s\n", strings.Repeat(align, len(header)-1))
		}
	}
	b.WriteByte('\n')
}

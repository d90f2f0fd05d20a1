package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// span is text in one look, such as bold of demo_screen.go; "" is plain.
type span struct{ text, look string }

type line []span

func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return b.String()
}

const reverse = "7"

// around the list: three lines and the names of the columns above it, two about the lock at the cursor and the keys below.
const (
	above = 4
	below = 3
)

// room is how many locks fit on the screen.
func (p *page) room() int { return max(0, p.height-above-below) }

// roomOfLock is how many lines about one lock do.
func (p *page) roomOfLock() int { return max(0, p.height-above) }

// fit makes text as wide as a column: what is too long ends with an ellipsis. Control characters are for printable.
func fit(text string, width int) string {
	text = displaywidth.TruncateString(text, max(0, width), "…")
	if displaywidth.String(text) > width { // no room for the ellipsis
		return strings.Repeat(" ", max(0, width))
	}
	return text + strings.Repeat(" ", width-displaywidth.String(text))
}

func fitRight(text string, width int) string {
	return strings.Repeat(" ", max(0, width-displaywidth.String(text))) + strings.TrimRight(fit(text, width), " ")
}

// render is the screen: its height in lines, of which none is wider than it.
func (p *page) render() []line {
	lines := p.head()
	if p.lock.name != "" {
		lines = append(lines, p.viewOfLock()...)
	} else {
		lines = append(lines, p.viewOfList()...)
	}
	for len(lines) < p.height-1 {
		lines = append(lines, nil)
	}
	lines = append(lines[:max(0, p.height-1)], p.foot())[:p.height]
	for i, l := range lines {
		lines[i] = l.cut(p.width)
	}
	return lines
}

// cut is a line that is at most so wide.
func (l line) cut(width int) (cut line) {
	for _, s := range l {
		w := displaywidth.String(s.text)
		if w > width {
			return append(cut, span{strings.TrimRight(fit(s.text, width), " "), s.look})
		}
		width -= w
		cut = append(cut, s)
	}
	return cut
}

const clock = "15:04:05"

// head says of what, and of when, the rest is.
func (p *page) head() []line {
	title := line{{"lockline top", bold}}
	if p.paused {
		title = append(title, span{"  PAUSED", yellow})
	}
	if at := p.shownAt(); !at.IsZero() {
		title = append(title, span{"  " + at.Format(clock), ""})
	}
	title = append(title, span{fmt.Sprintf("  every %v", p.interval), faint}, span{"  " + printable(p.server), ""})
	if p.lock.name != "" {
		return []line{title, {{"one lock, the list is not refreshed meanwhile", faint}}, p.trouble()}
	}
	sum := line{{p.counts(), ""}, {", sorted by " + p.by.String(), faint}}
	if p.pattern != "*" {
		sum = append(sum, span{"  of " + printable(p.pattern), ""})
	}
	if p.filter != "" {
		sum = append(sum, span{fmt.Sprintf("  %d with %s in the name", len(p.list()), printable(p.filter)), bold})
	}
	return []line{title, sum, p.trouble()}
}

// counts says how many locks there are.
func (p *page) counts() string {
	held, waitedFor, unknown := 0, 0, 0
	for _, r := range p.rows {
		if r.held {
			held++
		}
		if r.queue {
			waitedFor++
		}
		if !r.queues {
			unknown++
		}
	}
	noun := "locks"
	if len(p.rows) == 1 {
		noun = "lock"
	}
	text := fmt.Sprintf("%d %s, %d held, %d with waiters", len(p.rows), noun, held, waitedFor)
	if unknown > 0 {
		text += fmt.Sprintf(" (%d not known)", unknown)
	}
	return text
}

// trouble says that Redis does not answer.
func (p *page) trouble() line {
	since := p.late()
	if since.IsZero() {
		return nil
	}
	text := "no answer from Redis since " + since.Format(clock)
	if p.err != nil {
		text = "failing since " + since.Format(clock) + ": " + printable(say(p.err))
	}
	if at := p.shownAt(); !at.IsZero() {
		text = fmt.Sprintf("%v old, ", p.now.Sub(at).Round(time.Second)) + text
	}
	return line{{text, red}}
}

// column is one of the table. Its width is 0 if it shares what is left.
type column struct {
	name  string
	width int
	right bool
	cell  func(topRow) string
}

var columns = []column{
	{"NAME", 0, false, func(r topRow) string { return printable(r.name) }},
	{"KIND", 9, false, func(r topRow) string { return printable(r.kind) }},
	{"STATE", 5, false, topRow.stateWord},
	{"LEASE", 5, true, func(r topRow) string {
		if r.state == nil || !r.state.leased() {
			return ""
		}
		return brief(r.state.RemainingMS)
	}},
	{"WAITING", 7, true, func(r topRow) string {
		if n := r.waiting(); n >= 0 {
			return fmt.Sprint(n)
		}
		return "?"
	}},
	{"FIRST", 5, true, func(r topRow) string {
		if ms := r.first(); ms >= 0 {
			return brief(ms)
		}
		return ""
	}},
	{"CHANGES", 8, true, func(r topRow) string {
		switch {
		case r.changes < 0:
			return ""
		case r.changes == 0:
			return "0/s"
		case r.changes < 0.1:
			return fmt.Sprintf("≥%.3f/s", r.changes)
		}
		return fmt.Sprintf("≥%.1f/s", r.changes)
	}},
	{"HOLDER", 0, false, topRow.holderText},
}

// ownerColumn is for wide screens.
var ownerColumn = column{"OWNER", 28, false, func(r topRow) string {
	if r.state == nil || !r.state.Held {
		return ""
	}
	return printable(r.state.Holder.Owner)
}}

func (r topRow) stateWord() string {
	switch {
	case r.state != nil && r.state.Error != "":
		return "error"
	case r.state != nil && r.state.counts():
		return fmt.Sprint(r.state.Count)
	case r.held:
		return "held"
	}
	return "free"
}

func (r topRow) holderText() string {
	switch {
	case r.state == nil:
		return "" // not looked at
	case r.state.Error != "":
		return printable(r.state.Error)
	case r.state.Held, r.state.counts():
		return r.state.heldBy()
	}
	return ""
}

// brief is a time in at most five columns, up to 99 days.
func brief(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 100*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// table is the columns for a screen, with their widths.
func (p *page) table() []column {
	table := append([]column(nil), columns...)
	if p.width >= 140 {
		table = append(table, ownerColumn)
	}
	left := p.width - len(table) + 1
	for _, c := range table {
		left -= c.width
	}
	table[0].width = max(4, left/2)
	table[len(columns)-1].width = max(0, left-table[0].width)
	return table
}

func (p *page) viewOfList() []line {
	table := p.table()
	row := func(cell func(column) string) string {
		var b strings.Builder
		for i, c := range table {
			if i > 0 {
				b.WriteByte(' ')
			}
			if c.right {
				b.WriteString(fitRight(cell(c), c.width))
			} else {
				b.WriteString(fit(cell(c), c.width))
			}
		}
		return b.String()
	}
	lines := []line{{{row(func(c column) string { return c.name }), reverse}}}
	list := p.list()
	for i := p.from; i < min(p.from+p.room(), len(list)); i++ {
		r := list[i]
		look := ""
		switch {
		case i == p.cursor:
			look = reverse
		case r.stateWord() == "error":
			look = red
		case p.err != nil || r.state == nil:
			look = faint
		case r.queue:
			look = yellow
		}
		lines = append(lines, line{{row(func(c column) string { return c.cell(r) }), look}})
	}
	for len(lines) < p.room()+1 {
		lines = append(lines, nil)
	}
	if len(list) == 0 {
		return append(lines, nil, nil)
	}
	return append(lines, aboutRow(list[p.cursor])...)
}

// aboutRow has what the columns had to cut.
func aboutRow(r topRow) []line {
	who := "not looked at yet"
	switch {
	case r.state == nil:
	case r.state.Error != "":
		who = printable(r.state.Error)
	case r.state.Held:
		who = fmt.Sprintf("%v, owner %s, token %d", r.state.Holder, printable(r.state.Holder.Owner), r.state.Token)
	case r.state.counts():
		who = fmt.Sprintf("count %d, parties: %d", r.state.Count, len(r.state.Holders))
	default:
		who = "free"
	}
	return []line{{{printable(r.name), bold}, {", " + printable(r.kind), ""}}, {{who, ""}}}
}

// about is what lockline inspect says of the lock.
func (p *page) about() []string {
	if p.state == nil {
		return []string{printable(p.lock.name), "not looked at yet"}
	}
	if p.state.Error != "" {
		return []string{printable(p.lock.name), printable(p.state.Error)}
	}
	var b bytes.Buffer
	p.state.print(&b)
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

func (p *page) viewOfLock() (lines []line) {
	about := p.about()
	for _, text := range about[min(p.scroll, len(about)):] {
		lines = append(lines, line{{text, ""}})
	}
	return lines[:min(len(lines), p.roomOfLock())]
}

func (p *page) foot() line {
	switch {
	case p.typing:
		return line{{"filter: ", bold}, {printable(p.filter), ""}, {" ", reverse}, {"  enter: keep it, esc: leave it", faint}}
	case p.lock.name != "":
		return line{{"esc list   ↑↓ scroll   p pause   q quit", faint}}
	}
	return line{{"q quit   s/←→ sort   / filter   p pause   ↑↓ select   enter inspect", faint}}
}

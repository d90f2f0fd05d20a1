package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// page is what lockline top shows and does, without a terminal or Redis: it is given keys, looks and sizes.
type page struct {
	server   string // for people
	pattern  string
	interval time.Duration

	width, height int
	now           time.Time

	states  []lockState // of the last look that Redis answered, in order
	at      time.Time
	err     error     // of the last look
	failing time.Time // since when looks fail
	asked   time.Time // when the look began that is under way; zero if none is

	by     int // the index of the order
	paused bool
	cursor int        // the selected row
	from   int        // the first row on the screen
	open   *lockState // shown in full, as it was when it was selected; nil for the list
}

// look is what lockline ls found.
type look struct {
	begun, at time.Time
	states    []lockState
	err       error
}

// order is how the list is sorted. Equal ones are sorted by name.
type order struct {
	name    string
	compare func(a, b lockState) int
}

var orders = []order{
	{"waiting", func(a, b lockState) int { return cmp.Compare(len(b.Queue), len(a.Queue)) }},
	{"first", func(a, b lockState) int { return cmp.Compare(firstWait(b), firstWait(a)) }},
	{"held for", func(a, b lockState) int { return cmp.Compare(b.HeldMS, a.HeldMS) }},
	{"lease", func(a, b lockState) int { return cmp.Compare(leaseLeft(a), leaseLeft(b)) }},
	{"name", func(a, b lockState) int { return 0 }},
}

// firstWait is for how long the first in the queue has waited, in milliseconds.
func firstWait(s lockState) int64 {
	if len(s.Queue) == 0 {
		return -1
	}
	return s.Queue[0].AgeMS
}

// leaseLeft is what is left, in milliseconds; of a lock that is not held, more than any.
func leaseLeft(s lockState) int64 {
	if !s.leased() {
		return math.MaxInt64
	}
	return s.RemainingMS
}

// take is given a look. While the page is paused, what it shows stays.
func (p *page) take(l look) {
	p.asked = time.Time{}
	switch {
	case p.paused && !p.at.IsZero():
	case l.err != nil:
		if p.err == nil {
			p.failing = l.begun
		}
		p.err = l.err
	default:
		p.states, p.at, p.err = l.states, l.at, nil
		p.sort(0)
	}
}

// sort sorts by the order that is so far from this one.
func (p *page) sort(by int) {
	p.by = (p.by + by + len(orders)) % len(orders)
	slices.SortFunc(p.states, func(a, b lockState) int {
		return cmp.Or(orders[p.by].compare(a, b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	p.move(0)
}

func (p *page) resize(width, height int) {
	p.width, p.height = width, height
	p.move(0)
}

const (
	above = 4 // lines above the rows: three, and the names of the columns
	below = 1 // the keys
)

// room is how many rows fit on the screen.
func (p *page) room() int { return max(0, p.height-above-below) }

// move moves the cursor, and the rows that are on the screen with it.
func (p *page) move(by int) {
	n := len(p.states)
	if p.open != nil {
		n = len(p.about())
	}
	p.cursor = max(0, min(p.cursor+by, n-1))
	p.from = max(min(p.from, p.cursor), p.cursor-max(p.room(), 1)+1)
	p.from = max(0, min(p.from, n-p.room()))
}

// What a key does to the program.
type action int

const (
	goOn action = iota
	lookNow
	quit
	interrupt
)

// key is given a key: its character, or its name.
func (p *page) key(k string) action {
	switch k {
	case "ctrl-c":
		return interrupt
	case "q":
		return quit
	case "p":
		if p.paused = !p.paused; !p.paused {
			return lookNow
		}
	case "s", "right":
		p.sort(1)
	case "S", "left":
		p.sort(-1)
	case "up", "k":
		p.move(-1)
	case "down", "j":
		p.move(1)
	case "pgup":
		p.move(-p.room())
	case "pgdn":
		p.move(p.room())
	case "home":
		p.move(-p.cursor)
	case "end":
		p.move(math.MaxInt32)
	case "enter", "i":
		if p.open == nil && len(p.states) > 0 {
			p.open = new(p.states[p.cursor])
			p.cursor, p.from = 0, 0
		}
	case "esc":
		if p.open != nil {
			p.cursor, p.open = p.opened(), nil
			p.move(0)
		}
	}
	return goOn
}

// opened is the index of the lock that is shown in full, or -1 if it is free by now.
func (p *page) opened() int {
	return slices.IndexFunc(p.states, func(s lockState) bool { return s.Name == p.open.Name && s.Kind == p.open.Kind })
}

// about is what lockline inspect says of that lock.
func (p *page) about() []string {
	s := lockState{Name: p.open.Name, Kind: p.open.Kind}
	if i := p.opened(); i >= 0 {
		s = p.states[i]
	}
	var b strings.Builder
	s.print(&b)
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// line is text in one style, such as bold of demo_screen.go; "" is plain.
type line struct{ text, style string }

const reverse = "7"

// fit makes text as wide as a column: what is too long ends with an ellipsis. Control characters are for printable.
func fit(text string, width int) string {
	text = displaywidth.TruncateString(text, max(0, width), "…")
	if displaywidth.String(text) > width { // no room for the ellipsis
		return strings.Repeat(" ", max(0, width))
	}
	return text + strings.Repeat(" ", width-displaywidth.String(text))
}

// render is the screen: its height in lines, of which none is wider than it.
func (p *page) render() []line {
	lines := p.head()
	if p.open != nil {
		lines = append(lines, line{})
		for i, text := range p.about() {
			lines = append(lines, p.row(i, text, "")...)
		}
	} else {
		lines = append(lines, p.list()...)
	}
	for len(lines) < p.height-below {
		lines = append(lines, line{})
	}
	foot := line{"q quit   s/←→ sort   p pause   ↑↓ select   enter inspect", faint}
	if p.open != nil {
		foot.text = "q quit   esc list   p pause   ↑↓ scroll"
	}
	lines = append(lines[:max(0, p.height-below)], foot)[:p.height]
	for i, l := range lines {
		lines[i].text = strings.TrimRight(fit(l.text, p.width), " ")
	}
	return lines
}

// row is a line at an index, if that is on the screen.
func (p *page) row(i int, text, style string) []line {
	switch {
	case i < p.from || i >= p.from+p.room():
		return nil
	case i == p.cursor:
		style = reverse
	}
	return []line{{text, style}}
}

const clock = "15:04:05"

// head says of what, and of when, the rest is.
func (p *page) head() []line {
	title := "lockline top"
	if p.paused {
		title += "  PAUSED"
	}
	if !p.at.IsZero() {
		title += "  " + p.at.Format(clock)
	}
	title += fmt.Sprintf("  every %v  %s", p.interval, printable(p.server))
	held, waitedFor := 0, 0
	for _, s := range p.states {
		if s.Held {
			held++
		}
		if len(s.Queue) > 0 {
			waitedFor++
		}
	}
	sum := fmt.Sprintf("locks: %d, held: %d, with waiters: %d, sorted by %s",
		len(p.states), held, waitedFor, orders[p.by].name)
	if p.pattern != "*" {
		sum += ", of " + printable(p.pattern)
	}
	return []line{{title, bold}, {sum, ""}, {p.trouble(), red}}
}

// trouble says that Redis does not answer, if that is for long.
func (p *page) trouble() (text string) {
	switch {
	case p.err != nil:
		text = "failing since " + p.failing.Format(clock) + ": " + printable(say(p.err))
	case !p.asked.IsZero() && p.now.Sub(p.asked) > max(2*time.Second, 2*p.interval):
		text = "no answer from Redis since " + p.asked.Format(clock)
	default:
		return ""
	}
	if !p.at.IsZero() {
		text = fmt.Sprintf("%v old, ", p.now.Sub(p.at).Round(time.Second)) + text
	}
	return text
}

// list is the names of the columns, and the rows below them.
func (p *page) list() []line {
	left, shares := p.width+1, 0 // no space behind the last one
	var table []column
	for _, c := range columns {
		if c.name == "TOKEN" && p.width < 110 { // which is shown with the lock in full
			continue
		}
		table = append(table, c)
		left -= c.width + 1
		if c.width == 0 {
			shares++
		}
	}
	row := func(cell func(column) string) string {
		var cells []string
		for _, c := range table {
			cells = append(cells, fit(cell(c), cmp.Or(c.width, max(4, left/shares))))
		}
		return strings.Join(cells, " ")
	}
	lines := []line{{row(func(c column) string { return c.name }), reverse}}
	for i, s := range p.states {
		style := ""
		switch {
		case s.Error != "":
			style = red
		case p.err != nil:
			style = faint
		case len(s.Queue) > 0:
			style = yellow
		}
		lines = append(lines, p.row(i, row(func(c column) string { return c.cell(s) }), style)...)
	}
	return lines
}

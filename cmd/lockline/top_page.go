package main

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/rlock"
)

// page is what lockline top shows and does, without a terminal or Redis: it is given keys, samples and sizes.
type page struct {
	server   string // for people
	pattern  string
	interval time.Duration

	width, height int
	now           time.Time

	rows    []topRow // of the last sample of the list that Redis answered, in no order
	at      time.Time
	err     error     // of the last sample
	failing time.Time // since when samples fail
	asked   time.Time // when the sample was begun whose answer is not there yet; zero if none is under way
	past    map[found]*past

	by             order
	filter, before string // before: the one that is left with Esc
	typing         bool   // a filter
	paused         bool
	cursor, from   int // in the list, which begins on the screen at from

	lock   found // that is inspected; none if it has no name
	state  *lockState
	lockAt time.Time
	scroll int
}

func newPage(server, pattern string, interval time.Duration) *page {
	return &page{server: server, pattern: pattern, interval: interval, past: map[found]*past{}}
}

// past is what was seen of a lock's holders.
type past struct {
	holder string // the last one
	looks  []glance
}

type glance struct {
	at      time.Time
	changed bool // the holder is another one than at the look before
}

// pastLooks is of how many looks the changes a second are made.
const pastLooks = 11

// saw remembers the holder. Of several hand-overs between two looks it sees one.
func (p *past) saw(at time.Time, r topRow) {
	l := glance{at: at}
	if r.state.Held {
		holder := r.state.Holder.Owner
		if r.letter != rlock.KindRedLock { // whose token can grow under its holder
			holder = fmt.Sprint(holder, " ", r.state.Token)
		}
		l.changed = p.holder != "" && p.holder != holder
		p.holder = holder
	}
	p.looks = append(p.looks, l)
	if len(p.looks) > pastLooks {
		p.looks = p.looks[1:]
	}
}

// changes is how often the holder was seen to change, a second.
func (p *past) changes() float64 {
	if len(p.looks) < 2 {
		return -1
	}
	n := 0
	for _, l := range p.looks[1:] {
		if l.changed {
			n++
		}
	}
	return float64(n) / p.looks[len(p.looks)-1].at.Sub(p.looks[0].at).Seconds()
}

// wish is what the next sample is to find out.
func (p *page) wish() wish {
	if p.lock.name != "" {
		return wish{lock: p.lock}
	}
	return wish{pattern: p.pattern, filter: p.filter, by: p.by, from: p.from, rows: p.room()}
}

// ready reports whether a sample may begin.
func (p *page) ready() bool { return !p.paused && p.asked.IsZero() }

// take is given a sample. While the page is paused, what it shows stays.
func (p *page) take(s sample) {
	p.asked = time.Time{}
	if p.paused && !p.at.IsZero() {
		return
	}
	if s.err != nil {
		if p.err == nil {
			p.failing = s.begun
		}
		p.err = s.err
		return
	}
	p.err = nil
	if s.of.lock.name != "" {
		if s.of.lock == p.lock {
			p.state, p.lockAt = &s.state, s.at
		}
		return
	}
	p.rows, p.at = s.rows, s.at
	for i, r := range p.rows {
		if r.state == nil || r.state.Error != "" {
			continue
		}
		if p.past[r.found] == nil {
			p.past[r.found] = &past{}
		}
		p.past[r.found].saw(s.at, r)
		p.rows[i].changes = p.past[r.found].changes()
	}
	for l, past := range p.past {
		if s.at.Sub(past.looks[len(past.looks)-1].at) > max(time.Minute, pastLooks*p.interval) {
			delete(p.past, l)
		}
	}
	p.move(0)
}

func (p *page) resize(width, height int) {
	p.width, p.height = width, height
	p.move(0)
}

// list is what there is to show, in order.
func (p *page) list() []topRow { return arrange(p.rows, p.by, p.filter) }

// move moves the cursor, and the part of the list that is on the screen with it.
func (p *page) move(by int) {
	n := len(p.list())
	p.cursor = max(0, min(p.cursor+by, n-1))
	p.from = max(min(p.from, p.cursor), p.cursor-max(p.room(), 1)+1)
	p.from = max(0, min(p.from, n-p.room()))
}

// What a key does to the program.
type action int

const (
	goOn action = iota
	quit
	interrupt
)

// key is given a key: its character, or its name.
func (p *page) key(k string) action {
	switch {
	case k == "ctrl-c":
		return interrupt
	case p.typing:
		p.edit(k)
		return goOn
	case k == "q":
		return quit
	case k == "p":
		p.paused = !p.paused
		return goOn
	case p.lock.name != "":
		p.keyOfLock(k)
		return goOn
	}
	switch k {
	case "s", "right":
		p.sort(1)
	case "S", "left":
		p.sort(-1)
	case "/":
		p.typing, p.before = true, p.filter
	case "esc":
		p.find("")
	case "up", "k":
		p.move(-1)
	case "down", "j":
		p.move(1)
	case "pgup":
		p.move(-p.room())
	case "pgdn":
		p.move(p.room())
	case "home":
		p.move(-len(p.rows))
	case "end":
		p.move(len(p.rows))
	case "enter", "i":
		if list := p.list(); len(list) > 0 {
			r := list[p.cursor]
			p.lock, p.state, p.lockAt, p.scroll = r.found, r.state, p.at, 0
		}
	}
	return goOn
}

func (p *page) sort(by int) {
	p.by = order((int(p.by) + by + orders) % orders)
	p.top()
}

func (p *page) find(filter string) {
	p.filter = filter
	p.top()
}

// top goes to the first row.
func (p *page) top() {
	p.cursor, p.from = 0, 0
}

// edit is given a key of a filter.
func (p *page) edit(k string) {
	switch k {
	case "enter":
		p.typing = false
	case "esc":
		p.typing = false
		p.find(p.before)
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(p.filter)
		p.find(p.filter[:len(p.filter)-size])
	case "ctrl-u":
		p.find("")
	default:
		if utf8.RuneCountInString(k) == 1 {
			p.find(p.filter + k)
		}
	}
}

// keyOfLock is given a key while one lock is inspected.
func (p *page) keyOfLock(k string) {
	switch k {
	case "esc", "enter", "i", "left":
		p.lock, p.state = found{}, nil
	case "up", "k":
		p.scroll--
	case "down", "j":
		p.scroll++
	case "pgup":
		p.scroll -= p.roomOfLock()
	case "pgdn":
		p.scroll += p.roomOfLock()
	case "home":
		p.scroll = 0
	case "end":
		p.scroll = len(p.about())
	}
	p.scroll = max(0, min(p.scroll, len(p.about())-p.roomOfLock()))
}

// late is since when Redis has not answered, if that is for long.
func (p *page) late() time.Time {
	switch {
	case p.err != nil:
		return p.failing
	case !p.asked.IsZero() && p.now.Sub(p.asked) > max(2*time.Second, 2*p.interval):
		return p.asked
	}
	return time.Time{}
}

// shownAt is when what is on the screen was so; zero if nothing is there yet.
func (p *page) shownAt() time.Time {
	if p.lock.name != "" {
		return p.lockAt
	}
	return p.at
}

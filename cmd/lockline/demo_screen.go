package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/rlock"
)

// screen shows the demo in plain lines, the same on a terminal and in a pipe:
// a column for each process. Of the many hand-overs it shows a sample.
type screen struct {
	out     io.Writer
	colour  bool
	fair    bool
	redlock bool
	every   time.Duration // between two rows
	begun   time.Time

	lanes []lane         // process 1 first
	queue []rlock.Waiter // of a fair lock
	count int            // the counter as last written
	holds int
	row   time.Time // of the last row
	rows  int
}

// lane is what one process is at.
type lane struct {
	kind    kind
	token   int64 // of its last hold
	session string
	dead    bool // was killed
}

func newScreen(out io.Writer, o demoOptions) *screen {
	return &screen{
		out: out, colour: colourful(out), fair: o.fair, redlock: o.redlock, begun: time.Now(), lanes: make([]lane, o.processes),
		every: max(o.duration/30, 100*time.Millisecond),
	}
}

// colourful: a terminal whose user did not ask for plain text, or anything else whose user asked for color.
func colourful(out io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func (s *screen) intro(redis string, victim int) {
	title, fairly := "lockline demo", ""
	if s.fair {
		title = "lockline demo --fair"
		fairly = fmt.Sprintf(`The lock is fair: first come, first served. Before that kill there will be another,
of the first in the queue. A waiter is considered alive for %v after its last heartbeat.
`, demoLiveness)
	}
	if s.redlock {
		title = "lockline demo --redlock"
		fairly = fmt.Sprintf(`The lock is on %d independent servers, and its holder has a majority of them.
Before that kill one server will be killed.
`, redlockServers)
	}
	fmt.Fprintf(s.out, `%s
%d processes share a lock and a counter in a file. Each in turn: lock, read the
counter, pause, write it plus one, unlock; sometimes it locks again while it
holds (HOLD×2). Between its turns it works elsewhere (·). Process %d will be
killed while it holds.
%sRedis: %s. Lease: %v, renewed while the holder lives.

`, s.paint(bold, title), len(s.lanes), victim, fairly, redis, demoLease)
	head := pad("time", 9)
	for i := range s.lanes {
		head += pad(fmt.Sprintf("P%d", i+1), 8)
	}
	head += pad("fencing token", 19) + pad("counter", 9) + "holds"
	if s.fair {
		head += "  queue"
	}
	fmt.Fprintln(s.out, s.paint(bold, head))
}

// show keeps the lanes, and prints a row if it is time for one.
func (s *screen) show(e event) {
	if e.Kind == looked {
		s.queue = e.Queue
	}
	if e.Process == 0 {
		return
	}
	l := &s.lanes[e.Process-1]
	switch e.Kind {
	case waiting:
		l.session = e.Session
	case wrote:
		s.count = e.Count
		return
	case failed, hindered:
		s.say(e.at(), "process %d: %s", e.Process, e.Error)
		return
	case entered:
		l.token = e.Token
		s.holds++
		s.queue = slices.DeleteFunc(slices.Clone(s.queue), func(w rlock.Waiter) bool { return w.Session == l.session })
	}
	if e.Kind != looked {
		l.kind = e.Kind
	}
	// A row with a queue shows one that was just looked at.
	if s.fair == (e.Kind == looked) && l.kind == s.wanted() && e.at().Sub(s.row) >= s.every || e.Kind == stalled {
		s.printRow(e)
	}
}

// wanted is what the next row shows: now and then a nested hold.
func (s *screen) wanted() kind {
	if s.rows%3 == 2 {
		return nested
	}
	return entered
}

func (s *screen) printRow(e event) {
	s.row = e.at()
	s.rows++
	line := s.clock(e.at())
	for _, l := range s.lanes {
		text, colour := l.look()
		line += s.paint(colour, pad(text, 8))
	}
	line += fmt.Sprintf("%-19d%-9d", s.lanes[e.Process-1].token, s.count)
	if s.fair {
		line += fmt.Sprintf("%-7d%s", s.holds, s.places(s.queue))
	} else {
		line += fmt.Sprint(s.holds)
	}
	fmt.Fprintln(s.out, line)
}

// places is a queue, the first one first.
func (s *screen) places(queue []rlock.Waiter) string {
	var text []string
	for _, w := range queue {
		n := s.whose(w)
		place := fmt.Sprintf("P%d", n)
		if n > 0 && s.lanes[n-1].dead {
			place += " (dead)"
		}
		text = append(text, place)
	}
	return cmp.Or(strings.Join(text, ", "), "-")
}

// whose is the number of the process that waits there.
func (s *screen) whose(w rlock.Waiter) int {
	return 1 + slices.IndexFunc(s.lanes, func(l lane) bool { return l.session == w.Session })
}

func (l lane) look() (text, colour string) {
	switch {
	case l.dead:
		return "dead", red
	case l.kind == waiting:
		return "wait", yellow
	case l.kind == entered, l.kind == unnested, l.kind == stalled:
		return "HOLD", green
	case l.kind == nested:
		return "HOLD×2", green
	}
	return "·", faint
}

func (s *screen) clock(at time.Time) string {
	return s.paint(faint, fmt.Sprintf("%5.2f s  ", at.Sub(s.begun).Seconds()))
}

// say prints a remark between the rows.
func (s *screen) say(at time.Time, format string, args ...any) {
	fmt.Fprintln(s.out, s.clock(at)+s.paint(bold, "-- "+fmt.Sprintf(format, args...)))
}

// allWaitFor: the victim stands still inside, and all others wait.
func (s *screen) allWaitFor(victim int) bool {
	for i, l := range s.lanes {
		if i+1 == victim && l.kind != stalled || i+1 != victim && l.kind != waiting && !l.dead {
			return false
		}
	}
	return true
}

func (s *screen) allHaveHeld() bool {
	return !slices.ContainsFunc(s.lanes, func(l lane) bool { return l.token == 0 })
}

func (s *screen) killed(at time.Time, number, pid int, state string) {
	s.lanes[number-1].dead = true
	s.say(at, "process %d %s: SIGKILL to pid %d", number, state, pid)
	s.row = at
}

// heldUp says now and then why nothing happens.
func (s *screen) heldUp(now, killed time.Time, end string) {
	if now.Sub(s.row) < 500*time.Millisecond {
		return
	}
	s.row = now
	queue := ""
	if s.fair {
		queue = "; queue: " + s.places(s.queue)
	}
	s.say(now, "no process can enter until the %s: %.1f s since the kill%s", end, now.Sub(killed).Seconds(), queue)
}

func (s *screen) verdict(v verdict) {
	fmt.Fprintf(s.out, "\n%s\n", s.paint(bold, "Verdict"))
	for _, c := range v {
		mark := s.paint(green, "✓")
		if !c.ok {
			mark = s.paint(red, "✗")
		}
		fmt.Fprintf(s.out, "  %s %s %s\n", mark, pad(c.name, 10), c.says)
	}
	if v.right() {
		fmt.Fprintln(s.out, s.paint(green, "All is right."))
	} else {
		fmt.Fprintln(s.out, s.paint(red, "Something is wrong."))
	}
}

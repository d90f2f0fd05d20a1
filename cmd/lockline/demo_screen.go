package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// screen shows the demo in plain lines, the same on a terminal and in a pipe:
// a column for each process. Of the many hand-overs it shows a sample.
type screen struct {
	out    io.Writer
	colour bool
	every  time.Duration // between two rows
	begun  time.Time

	lanes []lane // process 1 first
	dead  int    // number of the one that was killed
	count int    // the counter as last written
	holds int
	row   time.Time // of the last row
	rows  int
}

// lane is what one process is at.
type lane struct {
	kind  kind
	token int64
}

func newScreen(out io.Writer, processes int, duration time.Duration) *screen {
	return &screen{
		out: out, colour: colourful(out), begun: time.Now(), lanes: make([]lane, processes),
		every: max(duration/30, 100*time.Millisecond),
	}
}

// colourful: a terminal whose user did not ask for plain text.
func colourful(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
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
	fmt.Fprintf(s.out, `%s
%d processes share a lock and a counter in a file. Each in turn: lock, read the
counter, pause, write it plus one, unlock; sometimes it locks again while it
holds (HOLD×2). Between its turns it works elsewhere (·). Process %d will be
killed while it holds.
Redis: %s. Lease: %v, renewed while the holder lives.

`, s.paint(bold, "lockline demo"), len(s.lanes), victim, redis, demoLease)
	head := pad("time", 9)
	for i := range s.lanes {
		head += pad(fmt.Sprintf("P%d", i+1), 8)
	}
	fmt.Fprintln(s.out, s.paint(bold, head+pad("fencing token", 19)+pad("counter", 9)+"holds"))
}

// show keeps the lanes, and prints a row if it is time for one.
func (s *screen) show(e event) {
	l := &s.lanes[e.Process-1]
	switch e.Kind {
	case wrote:
		s.count = e.Count
		return
	case failed:
		s.say(e.at(), "process %d: %s", e.Process, e.Error)
		return
	case entered:
		l.token = e.Token
		s.holds++
	}
	l.kind = e.Kind
	if e.Kind == s.wanted() && e.at().Sub(s.row) >= s.every || e.Kind == stalled {
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
	for i, l := range s.lanes {
		text, colour := l.look()
		if s.dead == i+1 {
			text, colour = "dead", red
		}
		line += s.paint(colour, pad(text, 8))
	}
	fmt.Fprintln(s.out, line+fmt.Sprintf("%-19d%-9d%d", s.lanes[e.Process-1].token, s.count, s.holds))
}

func (l lane) look() (text, colour string) {
	switch l.kind {
	case waiting:
		return "wait", yellow
	case entered, unnested, stalled:
		return "HOLD", green
	case nested:
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
		if i+1 == victim && l.kind != stalled || i+1 != victim && l.kind != waiting {
			return false
		}
	}
	return true
}

func (s *screen) killed(at time.Time, victim, pid int) {
	s.dead = victim
	s.say(at, "process %d has read the counter (%d), has not written it: SIGKILL to pid %d", victim, s.count, pid)
	s.row = at
}

// orphaned tells now and then why nothing happens.
func (s *screen) orphaned(now, killed time.Time) {
	if now.Sub(s.row) < 500*time.Millisecond {
		return
	}
	s.row = now
	s.say(now, "nobody can enter until the dead holder's lease is over: %.1f s since the kill", now.Sub(killed).Seconds())
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

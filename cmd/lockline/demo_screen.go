package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// A screen shows the demo in plain lines, with a column for each process. Apart from colors, the lines are
// the same on a terminal and in a pipe. There are too many hand-overs to show them all, so each row is a
// sample.
type screen struct {
	out   io.Writer
	every time.Duration // shortest time between two rows
	begun time.Time

	lanes [demoProcesses]lane // process 1 first
	count int                 // value of the counter after the last write
	holds int
	row   time.Time // time of the last row or remark
}

// A lane is the column of one process.
type lane struct {
	state string // ·, wait, HOLD, STALL or dead
	held  bool   // the process has held the lock at least once
}

func newScreen(out io.Writer, contend time.Duration) *screen {
	every := max(contend/15, 100*time.Millisecond)
	s := &screen{out: painter{out}, begun: time.Now(), every: every}
	for i := range s.lanes {
		s.lanes[i].state = "·"
	}
	return s
}

// A painter colors some words if it writes to a terminal that is not dumb, or if CLICOLOR_FORCE is set and is
// not 0. If NO_COLOR is set, it colors nothing.
type painter struct{ io.Writer }

var colored = strings.NewReplacer("HOLD", "\x1b[32mHOLD\x1b[0m", "✓", "\x1b[32m✓\x1b[0m",
	"STALL", "\x1b[31mSTALL\x1b[0m", "dead", "\x1b[31mdead\x1b[0m", "✗", "\x1b[31m✗\x1b[0m")

func (p painter) Write(text []byte) (int, error) {
	forced := os.Getenv("CLICOLOR_FORCE")
	shows := terminal(p.Writer) && os.Getenv("TERM") != "dumb" || forced != "" && forced != "0"
	if !shows || os.Getenv("NO_COLOR") != "" {
		return p.Writer.Write(text)
	}
	_, err := colored.WriteString(p.Writer, string(text))
	return len(text), err
}

func (s *screen) intro(redis string) {
	fmt.Fprintf(s.out, `lockline demo
%d processes share a lock and a counter. Each in turn: lock, read the counter, pause,
write it plus one, unlock. Between its turns it works elsewhere (·). Process %d will
stand still while it holds, and process %d will be killed while it holds.
Redis: %s. Lease: %v, renewed while the holder lives.

`, demoProcesses, stallingProcess, killedProcess, redis, demoLease)
	head := fmt.Sprintf("%-9s", "time")
	for i := range s.lanes {
		head += fmt.Sprintf("P%-7d", i+1)
	}
	fmt.Fprintf(s.out, "%s%-19s%-9sholds\n", head, "fencing token", "counter")
}

// show updates the lanes after an event.
func (s *screen) show(e event) {
	l := &s.lanes[e.Process-1]
	switch {
	case e.Kind == waiting:
		l.state = "wait"
	case e.Refused:
		l.state = "·"
	case e.Kind == writing:
		s.count = e.Count
		l.state = "·"
	default:
		l.state, l.held = "HOLD", true
		s.holds++
	}
}

func (s *screen) printRow(e event) {
	s.row = e.at
	line := s.clock(e.at)
	for _, l := range s.lanes {
		line += fmt.Sprintf("%-8s", l.state)
	}
	fmt.Fprintf(s.out, "%s%-19d%-9d%d\n", line, e.Token, s.count, s.holds)
}

func (s *screen) clock(at time.Time) string {
	return fmt.Sprintf("%5.2f s  ", at.Sub(s.begun).Seconds())
}

// say prints a remark between the rows.
func (s *screen) say(at time.Time, format string, args ...any) {
	fmt.Fprintln(s.out, s.clock(at)+"-- "+fmt.Sprintf(format, args...))
	s.row = at
}

func (s *screen) allHaveHeld() bool {
	return !slices.ContainsFunc(s.lanes[:], func(l lane) bool { return !l.held })
}

// mark sets the state of a process that has just read the counter, and prints a remark.
func (s *screen) mark(e event, state, what string) {
	s.lanes[e.Process-1].state = state
	s.say(e.at, "process %d has read the counter (%d), has not written it, and %s", e.Process, s.count, what)
}

// heldUp prints a remark every half second while no process can get the lock.
func (s *screen) heldUp(now time.Time, since moment) {
	if now.Sub(s.row) >= 500*time.Millisecond {
		s.say(now, "no process can enter until the lease of process %d is over: %.1f s so far",
			since.process, now.Sub(since.at).Seconds())
	}
}

func (s *screen) recovered(e event, since moment) {
	s.say(e.at, "lease over: process %d holds after %.2f s", e.Process, e.at.Sub(since.at).Seconds())
	s.printRow(e)
}

func (s *screen) verdict(v verdict) {
	fmt.Fprint(s.out, "\nVerdict\n")
	for _, c := range v {
		mark := map[bool]string{true: "✓", false: "✗"}[c.ok]
		fmt.Fprintf(s.out, "  %s %-10s %s\n", mark, c.name, c.says)
	}
	fmt.Fprintln(s.out, map[bool]string{true: "All is right.", false: "Something is wrong."}[v.right()])
}

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockline/lockline/rlock"
)

// account is all that is known of a demo after it: what the processes
// reported, how they ended, and what the counter's file says.
type account struct {
	processes int
	lease     time.Duration
	liveness  time.Duration // of the waiters of a fair lock; 0: the lock is not fair
	slack     time.Duration // what recovery may need beyond these
	redlock   bool          // the lock is on several servers
	outage    time.Time     // redlock: when one of them was killed
	events    []event       // of each process in its order
	kill      *kill         // of the holder
	waiter    *kill         // fair: of the first in the queue
	ends      []end
	counter   int
	fileErr   error // the counter could not be read
}

// kill is a death that was arranged.
type kill struct {
	process int
	at      time.Time // just before the signal was sent
}

func (h *account) killed(process int) bool {
	return h.kill != nil && h.kill.process == process || h.waiter != nil && h.waiter.process == process
}

// end is how a process ended.
type end struct {
	process int
	planned bool // when and how it was to end
	how     string
}

// stay is an outermost hold, from after its Lock returned to before its Unlock
// was called: a process was certainly inside at least as long as that.
type stay struct {
	process     int
	token       int64
	asked       time.Time // before its Lock was called
	enter       time.Time
	leave       time.Time
	left        bool
	nested      int
	nestedWrong int // nested holds with a token of their own, or outside of any hold
	done        int // increments reported
}

type check struct {
	name string
	ok   bool
	says string
}

type verdict []check

func (v verdict) right() bool {
	return !slices.ContainsFunc(v, func(c check) bool { return !c.ok })
}

// judge computes the verdict. An account that shows nothing is not right either:
// without holds, re-entries or a killed holder there is nothing to conclude from.
func judge(h account) verdict {
	stays, strays := h.stays()
	v := verdict{
		h.counterIsExact(stays),
		holdsExcludeEachOther(stays),
		reentryKeepsTheHold(stays, strays),
		tokensGrow(stays),
		h.lockCameBack(stays),
		h.processesEndedAsPlanned(stays),
	}
	if h.liveness > 0 {
		v = append(v, h.servedInOrder(stays), h.deadWaiterWasSkipped(stays))
	}
	if h.redlock {
		v = append(v, h.outageWasSurvived(stays))
	}
	return v
}

// outageWasSurvived: every process has held the lock after the server was killed, and it took no lease.
func (h account) outageWasSurvived(stays []stay) check {
	c := check{name: "servers"}
	if h.outage.IsZero() {
		c.says = "no server was killed"
		return c
	}
	held := make(map[int]bool)
	before, after := 0, 0
	var first time.Time
	for _, s := range stays {
		if s.enter.Before(h.outage) {
			before++
			continue
		}
		if after++; after == 1 {
			first = s.enter
		}
		held[s.process] = true
	}
	if before == 0 || after == 0 {
		c.says = fmt.Sprintf("%d holds before one server was killed, %d after it", before, after)
		return c
	}
	took := first.Sub(h.outage)
	c.ok = len(held) >= h.processes-1 && took < h.lease
	c.says = fmt.Sprintf("one of %d killed; %d holds with all of them, %d with the rest, by %d processes, the first %.2f s later",
		redlockServers, before, after, len(held), took.Seconds())
	return c
}

// stays puts the events together, in the order of entering. strays are events
// of holding from a process that was not inside.
func (h account) stays() (stays []stay, strays int) {
	var all []*stay
	inside := make(map[int]*stay)
	asked := make(map[int]time.Time)
	last := make(map[int]time.Time)
	for _, e := range h.events {
		last[e.Process] = e.at()
		s := inside[e.Process]
		switch e.Kind {
		case waiting:
			asked[e.Process] = e.at()
			continue
		case entered:
			s = &stay{process: e.Process, token: e.Token, asked: asked[e.Process], enter: e.at()}
			inside[e.Process] = s
			all = append(all, s)
			continue
		case nested, wrote, left:
		default:
			continue
		}
		if s == nil {
			strays++
			continue
		}
		switch e.Kind {
		case nested:
			s.nested++
			if e.Token != s.token {
				s.nestedWrong++
			}
		case wrote:
			s.done++
		case left:
			s.leave, s.left = e.at(), true
			delete(inside, e.Process)
		}
	}
	for _, s := range inside { // never left: its process died inside
		s.leave = last[s.process]
		if h.kill != nil && h.kill.process == s.process {
			s.leave = h.kill.at
		}
	}
	for _, s := range all {
		stays = append(stays, *s)
	}
	slices.SortStableFunc(stays, func(a, b stay) int { return a.enter.Compare(b.enter) })
	return stays, strays
}

func (h account) counterIsExact(stays []stay) check {
	c := check{name: "counter"}
	done, cut := 0, 0
	for _, s := range stays {
		done += s.done
		if !s.left && s.done == 0 {
			cut++
		}
	}
	if h.fileErr != nil {
		c.says = h.fileErr.Error()
		return c
	}
	c.ok = done > 0 && h.counter == done
	c.says = fmt.Sprintf("%d in the file, %d increments reported done", h.counter, done)
	if cut > 0 {
		c.says += fmt.Sprintf("; %d cut off before its write", cut)
	}
	return c
}

func holdsExcludeEachOther(stays []stay) check {
	overlaps := 0
	var latest stay // of those before, the one that left last
	for i, s := range stays {
		if i > 0 && s.enter.Before(latest.leave) {
			overlaps++
		}
		if i == 0 || s.leave.After(latest.leave) {
			latest = s
		}
	}
	return check{"exclusion", overlaps == 0 && len(stays) > 1, fmt.Sprintf("%d holds, %d overlaps", len(stays), overlaps)}
}

func reentryKeepsTheHold(stays []stay, strays int) check {
	holds, wrong := 0, strays
	for _, s := range stays {
		holds += s.nested
		wrong += s.nestedWrong
	}
	says := fmt.Sprintf("%d nested holds, each inside its outer hold and with its token", holds)
	if wrong > 0 {
		says = fmt.Sprintf("%d nested holds, %d events outside their outer hold or with another token", holds, wrong)
	}
	return check{"re-entry", holds > 0 && wrong == 0, says}
}

func tokensGrow(stays []stay) check {
	back := 0
	for i := 1; i < len(stays); i++ {
		if stays[i].token <= stays[i-1].token {
			back++
		}
	}
	c := check{"fencing", back == 0 && len(stays) > 1, fmt.Sprintf("tokens strictly increasing over %d holds", len(stays))}
	if back > 0 {
		c.says = fmt.Sprintf("%d of %d holds had a token that was not above the one before", back, len(stays))
	}
	return c
}

func (h account) lockCameBack(stays []stay) check {
	c := check{name: "recovery"}
	if h.kill == nil {
		c.says = "no holder was killed"
		return c
	}
	insideAtKill := slices.ContainsFunc(stays, func(s stay) bool { return s.process == h.kill.process && !s.left })
	if !insideAtKill {
		c.says = fmt.Sprintf("process %d was killed, but not while it held", h.kill.process)
		return c
	}
	next := slices.IndexFunc(stays, func(s stay) bool { return s.enter.After(h.kill.at) })
	if next < 0 {
		c.says = fmt.Sprintf("no process held it after process %d was killed", h.kill.process)
		return c
	}
	took := stays[next].enter.Sub(h.kill.at)
	c.ok = took <= h.lease+h.slack
	c.says = fmt.Sprintf("process %d killed while holding; process %d held %.2f s later (lease %v, at most %v allowed)",
		h.kill.process, stays[next].process, took.Seconds(), h.lease, h.lease+h.slack)
	return c
}

func (h account) processesEndedAsPlanned(stays []stay) check {
	c := check{name: "processes"}
	for _, e := range h.ends {
		if !e.planned {
			c.says = fmt.Sprintf("process %d ended unexpectedly: %s", e.process, e.how)
			return c
		}
	}
	for _, e := range h.events {
		if e.Kind == failed {
			c.says = fmt.Sprintf("process %d: %s", e.Process, e.Error)
			return c
		}
	}
	if len(h.ends) != h.processes {
		c.says = fmt.Sprintf("%d of %d ended", len(h.ends), h.processes)
		return c
	}
	held := make(map[int]bool)
	for _, s := range stays {
		held[s.process] = true
	}
	killed := 0
	for _, e := range h.ends {
		if h.killed(e.process) {
			killed++
		}
	}
	c.ok = len(held) == h.processes
	c.says = fmt.Sprintf("%d of %d held the lock; %d killed as planned, %d ended by themselves", len(held), h.processes, killed, h.processes-killed)
	return c
}

// servedInOrder goes by what Redis said to those that looked. One that was in
// the queue then has to enter before those that were behind it, and before those
// that had not yet asked. The clocks of the processes matter only for the latter.
func (h account) servedInOrder(stays []stay) check {
	c := check{name: "order"}
	turns := h.turns(stays)
	if known := slices.Compact(slices.Sorted(maps.Values(turns))); len(known) != len(stays) || len(turns) != len(stays) {
		c.says = fmt.Sprintf("of %d holds, %d have an owner that was seen; of %d owners", len(stays), len(known), len(turns))
		return c
	}
	behind, early := make(map[int]bool), make(map[int]bool) // turns
	for _, e := range h.events {
		for i, w := range e.Queue {
			turn, served := turns[w.Owner]
			if !served {
				turn = h.unserved(w, stays)
			}
			for _, other := range e.Queue[i+1:] {
				t, served := turns[other.Owner]
				if served {
					behind[t] = true
				}
				if served && t < turn {
					early[t] = true
				}
			}
			for t, s := range stays[:turn] {
				if s.asked.After(e.at()) {
					early[t] = true
				}
			}
		}
	}
	c.ok = len(early) == 0 && len(behind) > 0
	switch {
	case c.ok:
		c.says = fmt.Sprintf("served in order of arrival: %d holds, %d of them seen behind others in the queue, none before them", len(stays), len(behind))
	case len(early) > 0:
		c.says = fmt.Sprintf("not served in order of arrival: %d of %d holds before their turn", len(early), len(stays))
	default:
		c.says = "no hold was seen behind others in the queue"
	}
	return c
}

// turns numbers the acquisitions, by owner field, in the order of entering.
func (h account) turns(stays []stay) map[string]int {
	byToken := make(map[int64]int)
	for i, s := range stays {
		byToken[s.token] = i
	}
	turns := make(map[string]int)
	for _, e := range h.events {
		if i, ok := byToken[e.Token]; ok && e.Kind == looked && e.Owner != "" {
			turns[e.Owner] = i
		}
	}
	return turns
}

// unserved is the turn that a waiter without one still waited for: after all
// holds, but a dead one does not wait.
func (h account) unserved(w rlock.Waiter, stays []stay) int {
	if h.waiter != nil && h.process(w) == h.waiter.process {
		if i := slices.IndexFunc(stays, func(s stay) bool { return s.enter.After(h.waiter.at) }); i >= 0 {
			return i
		}
	}
	return len(stays)
}

func (h account) process(w rlock.Waiter) int {
	i := slices.IndexFunc(h.events, func(e event) bool { return e.Kind == waiting && e.Session == w.Session })
	if i < 0 {
		return 0
	}
	return h.events[i].Process
}

func (h account) deadWaiterWasSkipped(stays []stay) check {
	c := check{name: "skipping"}
	if h.waiter == nil {
		c.says = "no waiter was killed"
		return c
	}
	// No waiter was served between the last look before the kill and the kill, if one
	// and the same hold lasted all the time.
	var look event
	for _, e := range h.events {
		if e.Kind == looked && e.At > look.At && !e.at().After(h.waiter.at) {
			look = e
		}
	}
	inside := slices.IndexFunc(stays, func(s stay) bool {
		return s.token == look.Token && s.left && s.leave.After(h.waiter.at)
	})
	if inside < 0 || len(look.Queue) < 2 || h.process(look.Queue[0]) != h.waiter.process {
		c.says = fmt.Sprintf("process %d was killed, but not while it was first in a queue", h.waiter.process)
		return c
	}
	if inside+1 == len(stays) {
		c.says = fmt.Sprintf("no process held it after process %d was killed", h.waiter.process)
		return c
	}
	next := stays[inside+1]
	took := next.enter.Sub(stays[inside].leave)
	c.ok = next.process != h.waiter.process && took <= h.liveness+h.slack
	c.says = fmt.Sprintf("process %d killed first in the queue; those behind it waited %.2f s because of it, then process %d held (liveness %v, at most %v allowed)",
		h.waiter.process, took.Seconds(), next.process, h.liveness, h.liveness+h.slack)
	return c
}

package main

import (
	"fmt"
	"slices"
	"time"
)

// An account has all facts about a demo that has ended.
type account struct {
	events []event // in the order in which the store received them
	stall  moment  // when a process was stopped while it held the lock
	kill   moment  // when a process was killed while it held the lock
	ends   []end
}

// A moment is the time at which a process was stopped or killed. If that did not happen, process is 0.
type moment struct {
	process int
	at      time.Time
}

// An end describes how a process ended.
type end struct {
	process int
	planned bool   // the demo ended the process, or the process ended by itself as it should
	how     string // exit status or signal
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

// judge returns the verdict about an account. If the account has no events for a check, the check fails, for
// example if no process was killed.
func judge(h account) verdict {
	reads := slices.DeleteFunc(slices.Clone(h.events), func(e event) bool { return e.Kind != reading })
	return verdict{
		h.holdsExcludeEachOther(len(reads)),
		h.counterIsExact(),
		tokensGrow(reads),
		h.lateWriteWasRefused(),
		lockCameBack("stall", "stood still", h.stall, reads),
		lockCameBack("kill", "was killed", h.kill, reads),
		h.processesEndedAsPlanned(reads),
	}
}

// holdsExcludeEachOther checks that no process read the counter while another one held the lock. A process
// held the lock from its read to its write, unless it knew that it had lost the lock.
func (h account) holdsExcludeEachOther(holds int) check {
	overlaps := 0
	read := map[int]int{} // index of the last read of each process
	for i, e := range h.events {
		begun, known := read[e.Process]
		switch e.Kind {
		case reading:
			read[e.Process] = i
		case writing:
			if e.Lost != "" {
				continue // the process knew that it did not hold the lock any more
			}
			other := func(o event) bool { return o.Kind == reading }
			if !known || slices.ContainsFunc(h.events[begun+1:i], other) {
				overlaps++
			}
		}
	}
	says := fmt.Sprintf("%d holds, %d overlaps", holds, overlaps)
	return check{"exclusion", overlaps == 0 && holds > 1, says}
}

// counterIsExact checks that the counter equals the number of increments. If two processes had read the same
// count, they would have written the same new count.
func (h account) counterIsExact() check {
	done, count := 0, 0
	for _, e := range h.events {
		if e.Kind == writing && !e.Refused {
			done++
			count = e.Count
		}
	}
	return check{"counter", done > 0 && count == done, fmt.Sprintf("%d after %d increments", count, done)}
}

func tokensGrow(reads []event) check {
	back := 0
	for i := 1; i < len(reads); i++ {
		if reads[i].Token <= reads[i-1].Token {
			back++
		}
	}
	says := fmt.Sprintf("strictly increasing over %d holds", len(reads))
	if back > 0 {
		says = fmt.Sprintf("%d of %d holds had a token that was not above the one before", back, len(reads))
	}
	return check{"tokens", back == 0 && len(reads) > 1, says}
}

// lateWriteWasRefused checks that the process that was stopped wrote with its old token, and that the write
// was refused. The process must also have known that it had lost the lock.
func (h account) lateWriteWasRefused() check {
	c := check{name: "fencing"}
	i := slices.IndexFunc(h.events, func(e event) bool {
		return e.Kind == writing && e.Process == h.stall.process && !e.at.Before(h.stall.at)
	})
	switch {
	case i < 0:
		c.says = "no process wrote after it had stood still"
	case !h.events[i].Refused:
		c.says = fmt.Sprintf("the late write of process %d was not refused", h.stall.process)
	case h.events[i].Lost == "":
		c.says = fmt.Sprintf("process %d did not know that its lease was over", h.stall.process)
	default:
		c.ok = true
		c.says = fmt.Sprintf("the late write of process %d was refused; its hold said: %s",
			h.stall.process, h.events[i].Lost)
	}
	return c
}

func lockCameBack(name, what string, since moment, reads []event) check {
	c := check{name: name}
	next := slices.IndexFunc(reads, func(e event) bool { return e.at.After(since.at) })
	switch {
	case since.process == 0:
		c.says = "no holder " + what
	case next < 0:
		c.says = fmt.Sprintf("no process held it after process %d %s", since.process, what)
	default:
		took := reads[next].at.Sub(since.at)
		c.ok = took <= demoLease+demoSlack
		c.says = fmt.Sprintf("process %d %s; process %d held %.2f s later (lease %v, at most %v allowed)",
			since.process, what, reads[next].Process, took.Seconds(), demoLease, demoLease+demoSlack)
	}
	return c
}

func (h account) processesEndedAsPlanned(reads []event) check {
	c := check{name: "processes"}
	for _, e := range h.ends {
		if !e.planned {
			c.says = fmt.Sprintf("process %d ended unexpectedly: %s", e.process, e.how)
			return c
		}
	}
	held := map[int]bool{}
	for _, e := range reads {
		held[e.Process] = true
	}
	c.ok = len(h.ends) == demoProcesses && len(held) == demoProcesses
	c.says = fmt.Sprintf("%d of %d held the lock, %d ended as planned", len(held), demoProcesses, len(h.ends))
	return c
}

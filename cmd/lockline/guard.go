package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/lockline/lockline/rlock"
)

// guard watches a command that runs under a lock, and sees to it that it does not outlive the lease.
type guard struct {
	name     string
	lease    context.Context // ends when the lock is lost
	hold     lease
	grace    time.Duration
	lead     time.Duration // see killLead
	look     time.Duration // how often to look for renewals
	group    commandGroup
	signals  <-chan os.Signal
	troubles *lastTrouble // why renewals fail, and why the lock was lost
	errOut   io.Writer

	deadline time.Time // of the lease, as last known
	until    time.Time // as the warden knows it
	plan     plan
	told     bool // to end: SIGTERM or SIGKILL was sent for want of the lock
	killed   bool
}

// lease is what the guard needs of *rlock.Hold.
type lease interface {
	Deadline() time.Time
	Unlock(ctx context.Context) error
}

// commandGroup is the command and what it has started, with a warden that also ends them.
type commandGroup interface {
	until(t time.Time) (told bool) // has the warden end them then, unless another word comes
	ended() <-chan report          // of the command, once
	signal(s syscall.Signal)       // to the process group
	end(s syscall.Signal)          // to all descendants
	letGo()                        // of what runs on, of the warden, and of the terminal
}

// report is what the warden tells exec, once when the command runs and once when it has ended.
type report struct {
	PID    int    `json:",omitempty"`
	Code   int    `json:",omitempty"` // the exit code
	Late   bool   `json:",omitempty"` // the warden has ended it, because exec was silent for too long
	Failed string `json:",omitempty"` // what went wrong but for that
}

// plan is when the command must be told to end, and when it must have ended.
type plan struct{ term, kill time.Time }

// killLead is the time that a SIGKILL has to take effect before the lease ends.
func killLead(lease time.Duration) time.Duration { return min(50*time.Millisecond, lease/20) }

// whileHeld is the plan if no more renewals come.
func (g *guard) whileHeld() plan {
	return plan{term: g.deadline.Add(-g.grace), kill: g.deadline.Add(-g.lead)}
}

// onceLost is the plan if the lock is lost before the deadline: others may hold
// it already, so what is left is only to end in an orderly way, and soon.
func (g *guard) onceLost(now time.Time) plan {
	kill := now.Add(g.grace)
	if end := g.whileHeld().kill; end.Before(kill) {
		kill = end
	}
	return plan{term: now, kill: kill}
}

// watch returns when the command has ended.
func (g *guard) watch() report {
	lost := g.lease.Done()
	timer := time.NewTimer(g.next(time.Now()))
	for {
		select {
		case exit := <-g.group.ended():
			return exit
		case s := <-g.signals:
			g.group.signal(s.(syscall.Signal))
		case <-lost:
			lost = nil
			g.plan = g.onceLost(time.Now())
		case <-timer.C:
		}
		timer.Reset(g.next(time.Now()))
	}
}

// next does what is due and returns how long until something else may be. The warden has to know of a renewal
// long before the next one.
func (g *guard) next(now time.Time) time.Duration {
	if d := g.hold.Deadline(); !d.IsZero() && g.lease.Err() == nil { // moves with each renewal
		g.deadline = d
		g.plan = g.whileHeld()
	}
	if g.plan.kill != g.until && g.group.until(g.plan.kill) { // else the next look tells it
		g.until = g.plan.kill
	}
	switch {
	case !g.killed && !now.Before(g.plan.kill):
		g.tell(syscall.SIGKILL)
		g.killed = true
	case !g.told && !now.Before(g.plan.term):
		g.tell(syscall.SIGTERM)
	}
	switch {
	case g.killed:
		return time.Hour // the kernel has the rest in hand
	case g.told || g.plan.kill.Before(g.plan.term):
		return min(g.look, g.plan.kill.Sub(now))
	}
	return min(g.look, g.plan.term.Sub(now))
}

func (g *guard) tell(s syscall.Signal) {
	g.told = true
	g.group.end(s)
	name := map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL"}[s]
	if g.lease.Err() != nil {
		complain(g.errOut, fmt.Errorf("lock %q: lost; %s to the command", g.name, name))
		return
	}
	complain(g.errOut, fmt.Errorf("lock %q: cannot be renewed (%v); %s to the command",
		g.name, g.troubles, name))
}

// release frees the lock, which the command no longer needs, and decides on the exit code. It stops waiting
// for Redis at the time by. A command whose lock was lost has not done what was asked, whatever it says.
func (g *guard) release(exit report, by time.Time) error {
	told := g.told || exit.Late
	if told {
		g.group.end(syscall.SIGKILL) // what it has left behind has no lock either
	}
	g.group.letGo()
	if exit.Failed != "" {
		complain(g.errOut, fmt.Errorf("lock %q: %s", g.name, exit.Failed))
	}
	lost := g.lease.Err() != nil // the Unlock ends this context, too
	err := unlockBy(g.hold, by)
	switch {
	case told:
		why := fmt.Sprintf("could not be renewed (%v)", g.troubles)
		if lost {
			why = "was lost" + g.troubles.whyLost()
		} else if exit.Late && !g.told {
			why = "could not be renewed by a lockline that stood still"
		}
		return &exitError{exitLost, fmt.Errorf("lock %q: the command was ended, because the lock %s "+
			"(exit code of the command: %d)", g.name, why, exit.Code)}
	case errors.Is(err, rlock.ErrLost):
		return &exitError{exitLost, fmt.Errorf("lock %q: lost while the command ran%s "+
			"(exit code of the command: %d)", g.name, g.troubles.whyLost(), exit.Code)}
	case err != nil:
		complain(g.errOut, fmt.Errorf("freeing it failed, it stays taken until its lease is over: %s",
			say(err)))
	}
	if exit.Code == exitOK {
		return nil
	}
	return &exitError{code: exit.Code}
}

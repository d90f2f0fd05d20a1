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

// A guard watches a command that runs under a lock, and ends it before the lease ends.
type guard struct {
	name     string
	lease    context.Context // ends when the lock is lost
	hold     lease
	grace    time.Duration // time for the command to end after SIGTERM
	lead     time.Duration // see killLead
	look     time.Duration // interval at which the deadline of hold is read
	group    commandGroup
	signals  <-chan os.Signal
	troubles *lastTrouble // errors of renewals and of the loss
	errOut   io.Writer

	deadline time.Time // the last known deadline of hold
	until    time.Time // the last time that was sent to the warden
	plan     plan
	told     bool // SIGTERM or SIGKILL was sent because the lock is lost or may end
	killed   bool // SIGKILL was sent for this reason
}

// A lease has the methods of *rlock.Hold that the guard needs.
type lease interface {
	Deadline() time.Time
	Unlock(ctx context.Context) error
}

// A commandGroup is the command and its descendants, with a warden that also ends them.
type commandGroup interface {
	// until sends the warden the time at which it must end the group.
	until(t time.Time) (told bool)

	// ended returns a channel that gets a report when the command has ended.
	ended() <-chan report

	// signal sends a signal to the process group, and end sends one to all descendants.
	signal(s syscall.Signal)
	end(s syscall.Signal)

	// letGo ends the warden, and takes the terminal back.
	letGo()
}

// A report is a message of the warden to exec. The warden sends one when the command runs and one when it has
// ended.
type report struct {
	PID    int    `json:",omitempty"`
	Code   int    `json:",omitempty"` // exit code
	Late   bool   `json:",omitempty"` // the warden has ended the command, because exec was silent
	Failed string `json:",omitempty"` // error of the warden
}

// A plan has the times of SIGTERM and of SIGKILL.
type plan struct{ term, kill time.Time }

// killLead returns the time between SIGKILL and the end of a lease of this length.
func killLead(lease time.Duration) time.Duration { return min(50*time.Millisecond, lease/20) }

// whileHeld returns the plan for a lease that is not renewed any more.
func (g *guard) whileHeld() plan {
	return plan{term: g.deadline.Add(-g.grace), kill: g.deadline.Add(-g.lead)}
}

// onceLost returns the plan for a lock that is lost before the deadline. Others may already hold the lock, so
// the command must end now, but it gets the time for an orderly end.
func (g *guard) onceLost(now time.Time) plan {
	kill := now.Add(g.grace)
	if end := g.whileHeld().kill; end.Before(kill) {
		kill = end
	}
	return plan{term: now, kill: kill}
}

// watch watches the command until it has ended.
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

// next sends the signals and deadlines that are due, and returns the time until it must be called again. That
// is short enough for the warden to know of each renewal long before the next one.
func (g *guard) next(now time.Time) time.Duration {
	if d := g.hold.Deadline(); !d.IsZero() && g.lease.Err() == nil { // moves with each renewal
		g.deadline = d
		g.plan = g.whileHeld()
	}
	if g.plan.kill != g.until && g.group.until(g.plan.kill) { // if it fails, the next call repeats it
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
		return time.Hour // nothing is left to do but to wait for the end
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

// release frees the lock after the command has ended, and returns the error with the exit code. It does not
// wait for Redis after the time by. If the lock was lost, the exit code of the command does not count.
func (g *guard) release(exit report, by time.Time) error {
	told := g.told || exit.Late
	if told {
		g.group.end(syscall.SIGKILL) // processes that the command has left behind have no lock either
	}
	g.group.letGo()
	if exit.Failed != "" {
		complain(g.errOut, fmt.Errorf("lock %q: %s", g.name, exit.Failed))
	}
	lost := g.lease.Err() != nil // must be read before Unlock, which ends this context, too
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

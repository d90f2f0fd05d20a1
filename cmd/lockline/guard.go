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

// A guard watches a command that runs under a lock, and ends the command before the lease ends.
type guard struct {
	name     string
	lease    context.Context // ends when the lock is lost
	hold     lease
	grace    time.Duration // time for the command to end after SIGTERM
	lead     time.Duration // see killLead
	look     time.Duration // longest time between two readings of the deadline of hold
	group    commandGroup
	signals  <-chan os.Signal
	troubles *lastTrouble // errors of renewals and of the loss
	errOut   io.Writer

	deadline time.Time // the last known deadline of hold
	until    time.Time // the last time that was sent to the warden
	plan     plan
	signaled bool // SIGTERM or SIGKILL was sent because the lock is lost or the lease may end
	killed   bool // SIGKILL was sent because the lock is lost or the lease may end
}

// A lease has the methods of *rlock.Hold that the guard needs.
type lease interface {
	Deadline() time.Time
	Unlock(ctx context.Context) error
}

// A commandGroup is the command and its descendants, with the warden, which can end them, too.
type commandGroup interface {
	// until sends the warden the time t at which the warden must end the group. sent is false if that failed.
	until(t time.Time) (sent bool)

	// ended returns a channel that gets a report when the command has ended.
	ended() <-chan report

	// signal sends a signal to the process group. end sends a signal to the process group and to all
	// descendants.
	signal(s syscall.Signal)
	end(s syscall.Signal)

	// letGo ends the warden, and takes the terminal back.
	letGo()
}

// A report is a message of the warden to exec. The warden sends one report when the command runs, and one
// when the command has ended. If the command cannot be started, the warden sends one report with the error.
type report struct {
	PID    int    `json:",omitempty"`
	Code   int    `json:",omitempty"` // exit code
	Late   bool   `json:",omitempty"` // the warden has ended the command, because exec sent no later deadline
	Failed string `json:",omitempty"` // error of the warden, or of the start of the command
}

// A plan has the times of SIGTERM and of SIGKILL.
type plan struct{ term, kill time.Time }

// killLead returns the time between SIGKILL and the end of a lease of this length.
func killLead(lease time.Duration) time.Duration { return min(50*time.Millisecond, lease/20) }

// whileHeld returns the plan for the last known deadline. Each renewal moves this plan to a later time.
func (g *guard) whileHeld() plan {
	return plan{term: g.deadline.Add(-g.grace), kill: g.deadline.Add(-g.lead)}
}

// onceLost returns the plan for a lock that is lost before the deadline. Another process may already hold the
// lock, so the command must end now. But it gets the time of --grace, or the rest of the lease if that is
// shorter, to end in an orderly way.
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

// next sends the signals and deadlines that are due, and returns the time until it must be called again.
// Before a SIGKILL, this time is short, so that the warden gets each new deadline soon after the renewal.
func (g *guard) next(now time.Time) time.Duration {
	if d := g.hold.Deadline(); !d.IsZero() && g.lease.Err() == nil { // the deadline moves with each renewal
		g.deadline = d
		g.plan = g.whileHeld()
	}
	if g.plan.kill != g.until && g.group.until(g.plan.kill) { // if sending fails, the next call tries again
		g.until = g.plan.kill
	}
	switch {
	case !g.killed && !now.Before(g.plan.kill):
		g.endCommand(syscall.SIGKILL)
		g.killed = true
	case !g.signaled && !now.Before(g.plan.term):
		g.endCommand(syscall.SIGTERM)
	}
	switch {
	case g.killed:
		return time.Hour // there is nothing to do until the command has ended
	case g.signaled || g.plan.kill.Before(g.plan.term):
		return min(g.look, g.plan.kill.Sub(now))
	}
	return min(g.look, g.plan.term.Sub(now))
}

func (g *guard) endCommand(s syscall.Signal) {
	g.signaled = true
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
// wait for Redis after the time `by`. If the lock was lost, or the guard or the warden has ended the command,
// the exit code of lockline is exitLost.
func (g *guard) release(exit report, by time.Time) error {
	forced := g.signaled || exit.Late
	if forced {
		g.group.end(syscall.SIGKILL) // for processes that the command has left behind
	}
	g.group.letGo()
	if exit.Failed != "" {
		complain(g.errOut, fmt.Errorf("lock %q: %s", g.name, exit.Failed))
	}
	lost := g.lease.Err() != nil // must be read before Unlock, which ends this context, too
	err := unlockBy(g.hold, by)
	switch {
	case forced:
		why := fmt.Sprintf("could not be renewed (%v)", g.troubles)
		if lost {
			why = "was lost" + g.troubles.whyLost()
		} else if exit.Late && !g.signaled {
			why = "could not be renewed by a lockline that stood still"
		}
		return &exitError{exitLost, fmt.Errorf("lock %q: the command was ended, because the lock %s "+
			"(exit code of the command: %d)", g.name, why, exit.Code)}
	case errors.Is(err, rlock.ErrLost):
		return &exitError{exitLost, fmt.Errorf("lock %q: lost while the command ran%s "+
			"(exit code of the command: %d)", g.name, g.troubles.whyLost(), exit.Code)}
	case err != nil:
		complain(g.errOut, fmt.Errorf("freeing it failed, so it stays taken until its lease ends: %s",
			say(err)))
	}
	if exit.Code == exitOK {
		return nil
	}
	return &exitError{code: exit.Code}
}

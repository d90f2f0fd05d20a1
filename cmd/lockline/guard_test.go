package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/rlock"
)

// A fakeLease is the context of a hold, with a lease that the test renews and ends.
type fakeLease struct {
	context.Context
	end context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time
	unlocked error
}

func newFakeLease(d time.Duration) *fakeLease {
	l := &fakeLease{deadline: time.Now().Add(d)}
	l.Context, l.end = context.WithCancelCause(context.Background())
	return l
}

func (l *fakeLease) set(deadline time.Time, unlocked error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline, l.unlocked = deadline, unlocked
}

func (l *fakeLease) renew(d time.Duration) { l.set(time.Now().Add(d), nil) }

// lose ends the context as if the lock was lost. As with a Hold, the deadline is then zero.
func (l *fakeLease) lose() {
	l.set(time.Time{}, rlock.ErrLost)
	l.end(rlock.ErrLost)
}

// A fakeHold is the hold of a fakeLease. The two are different types, because the methods Deadline of a hold
// and of a context differ.
type fakeHold struct{ l *fakeLease }

func (h fakeHold) Deadline() time.Time {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.l.deadline
}

func (h fakeHold) Unlock(context.Context) error {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.l.unlocked
}

// A fakeGroup stands for the processes of the command. It records the signals that it gets, with their times.
// Each signal in fatal ends it.
type fakeGroup struct {
	begun time.Time
	limit time.Time // last time that the guard sent to the warden
	deaf  bool      // the next call of until fails
	got   []string
	fatal []syscall.Signal
	over  atomic.Bool
	done  chan report
}

func newFakeGroup(fatal ...syscall.Signal) *fakeGroup {
	return &fakeGroup{begun: time.Now(), fatal: fatal, done: make(chan report, 1)}
}

func (g *fakeGroup) ended() <-chan report { return g.done }
func (g *fakeGroup) end(s syscall.Signal) { g.signal(s) }
func (g *fakeGroup) letGo()               {}
func (g *fakeGroup) until(t time.Time) bool {
	if g.deaf {
		g.deaf = false
		return false
	}
	g.limit = t
	return true
}
func (g *fakeGroup) signal(s syscall.Signal) {
	if g.over.Load() {
		return
	}
	g.got = append(g.got, fmt.Sprintf("%v after %v", s, time.Since(g.begun)))
	if slices.Contains(g.fatal, s) {
		g.finish()
	}
}
func (g *fakeGroup) finish() {
	g.over.Store(true)
	g.done <- report{Code: 7}
}

func TestGuardEndsTheCommandInTime(t *testing.T) {
	const lease, grace = 30 * time.Second, 5 * time.Second
	for _, test := range []struct {
		what  string
		fatal []syscall.Signal
		play  func(l *fakeLease, g *fakeGroup, signals chan<- os.Signal)
		want  []string
		code  int
	}{
		{
			"the command ends by itself", nil,
			func(_ *fakeLease, g *fakeGroup, _ chan<- os.Signal) {
				time.Sleep(3 * time.Second)
				g.finish()
			},
			nil, 7,
		}, {
			"no renewal: SIGTERM at the deadline less grace, SIGKILL before the deadline",
			[]syscall.Signal{syscall.SIGKILL},
			func(*fakeLease, *fakeGroup, chan<- os.Signal) {},
			[]string{"terminated after 25s", "killed after 29.95s"}, exitLost,
		}, {
			"no renewal: SIGTERM is enough",
			[]syscall.Signal{syscall.SIGTERM},
			func(*fakeLease, *fakeGroup, chan<- os.Signal) {},
			[]string{"terminated after 25s"}, exitLost,
		}, {
			"each renewal moves the deadline",
			[]syscall.Signal{syscall.SIGKILL},
			func(l *fakeLease, _ *fakeGroup, _ chan<- os.Signal) {
				for range 6 {
					time.Sleep(10 * time.Second)
					l.renew(lease)
				}
			},
			[]string{"terminated after 1m25s", "killed after 1m29.95s"}, exitLost,
		}, {
			"renewed after SIGTERM: the command may take as long as the lock is held",
			[]syscall.Signal{syscall.SIGKILL},
			func(l *fakeLease, g *fakeGroup, _ chan<- os.Signal) {
				time.Sleep(26 * time.Second)
				l.renew(lease)
				time.Sleep(20 * time.Second)
				g.finish()
			},
			[]string{"terminated after 25s"}, exitLost,
		}, {
			"lost with time left: SIGTERM at once, SIGKILL after grace",
			[]syscall.Signal{syscall.SIGKILL},
			func(l *fakeLease, _ *fakeGroup, _ chan<- os.Signal) {
				time.Sleep(10 * time.Second)
				l.lose()
			},
			[]string{"terminated after 10s", "killed after 15s"}, exitLost,
		}, {
			"lost with less than grace left: SIGKILL no later than without the loss",
			[]syscall.Signal{syscall.SIGKILL},
			func(l *fakeLease, _ *fakeGroup, _ chan<- os.Signal) {
				time.Sleep(27 * time.Second)
				l.lose()
			},
			[]string{"terminated after 25s", "killed after 29.95s"}, exitLost,
		}, {
			"signals are forwarded, and the command's own exit code stands",
			[]syscall.Signal{syscall.SIGTERM},
			func(_ *fakeLease, _ *fakeGroup, signals chan<- os.Signal) {
				time.Sleep(time.Second)
				signals <- syscall.SIGHUP
				time.Sleep(time.Second)
				signals <- syscall.SIGTERM
			},
			[]string{"hangup after 1s", "terminated after 2s"}, 7,
		}, {
			"lost, and nobody knew until the release",
			nil,
			func(l *fakeLease, g *fakeGroup, _ chan<- os.Signal) {
				l.set(time.Now().Add(lease), rlock.ErrLost)
				g.finish()
			},
			nil, exitLost,
		}, {
			"the release fails: the command has done its work",
			nil,
			func(l *fakeLease, g *fakeGroup, _ chan<- os.Signal) {
				l.set(time.Now().Add(lease), errors.New("connection refused"))
				g.finish()
			},
			nil, 7,
		},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, group := newFakeLease(lease), newFakeGroup(test.fatal...)
				signals := make(chan os.Signal)
				var errOut bytes.Buffer
				g := &guard{
					name: "n", lease: l, hold: fakeHold{l}, grace: grace,
					lead: killLead(lease), look: lease / 10,
					group: group, signals: signals, troubles: new(lastTrouble), errOut: &errOut,
				}
				go test.play(l, group, signals)
				err := g.release(g.watch(), time.Now().Add(time.Hour))
				if !slices.Equal(group.got, test.want) {
					t.Errorf("signals: %q, want %q", group.got, test.want)
				}
				exit, _ := errors.AsType[*exitError](err)
				if exit == nil || exit.code != test.code {
					t.Errorf("exit: %v, want code %d", err, test.code)
				}
				if known := group.limit; test.code == exitLost && len(test.fatal) > 0 &&
					known != g.plan.kill {
					t.Errorf("the warden knows %v, the plan is %v", known, g.plan.kill)
				}
				silent := exit != nil && exit.err == nil && errOut.Len() == 0
				if test.code == exitLost && silent {
					t.Error("no word of the loss")
				}
			})
		})
	}
}

// When the guard has ended the command, one line says why. It names the actual reason, not all possible
// reasons.
func TestTheReasonIsSaidWhyTheCommandWasEnded(t *testing.T) {
	const lease = 30 * time.Second
	lost := rlock.Event{Type: rlock.EventLost, Err: fmt.Errorf("%w: it was forced", rlock.ErrLost)}
	for _, test := range []struct {
		what string
		play func(l *fakeLease, g *fakeGroup, troubles *lastTrouble)
		want string
	}{
		{
			"lost", func(l *fakeLease, _ *fakeGroup, troubles *lastTrouble) {
				time.Sleep(time.Second)
				troubles.Observe(t.Context(), lost)
				l.lose()
			},
			`lock "n": the command was ended, because the lock was lost: it was forced ` +
				`(exit code of the command: 7)`,
		}, {
			"lost, and nobody knew until the release",
			func(l *fakeLease, g *fakeGroup, troubles *lastTrouble) {
				l.set(time.Now().Add(lease), rlock.ErrLost)
				troubles.Observe(t.Context(), lost)
				g.finish()
			},
			`lock "n": lost while the command ran: it was forced (exit code of the command: 7)`,
		}, {
			"not renewed", func(_ *fakeLease, _ *fakeGroup, troubles *lastTrouble) {
				failed := rlock.Event{Type: rlock.EventRenewFailed, Err: errors.New("refused")}
				troubles.Observe(t.Context(), failed)
			},
			`lock "n": the command was ended, because the lock could not be renewed (refused) ` +
				`(exit code of the command: 7)`,
		}, {
			"ended by the warden", func(_ *fakeLease, g *fakeGroup, _ *lastTrouble) {
				g.done <- report{Code: 137, Late: true}
			},
			`lock "n": the command was ended, because the lock could not be renewed by a lockline that ` +
				`stood still (exit code of the command: 137)`,
		},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, group, troubles := newFakeLease(lease), newFakeGroup(syscall.SIGTERM), new(lastTrouble)
				g := &guard{
					name: "n", lease: l, hold: fakeHold{l}, grace: time.Second, lead: killLead(lease),
					look: lease / 10, group: group, troubles: troubles, errOut: new(bytes.Buffer),
				}
				go test.play(l, group, troubles)
				err := g.release(g.watch(), time.Now().Add(time.Hour))
				if err == nil || err.Error() != test.want {
					t.Errorf("%v, want %s", err, test.want)
				}
			})
		})
	}
}

func TestTheWardenLearnsOfARenewalLongBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		l, group := newFakeLease(lease), newFakeGroup()
		group.deaf = true // so the guard must call until again at its next look
		g := &guard{
			name: "n", lease: l, hold: fakeHold{l}, lead: killLead(lease), look: lease / 10,
			group: group, troubles: new(lastTrouble), errOut: new(bytes.Buffer),
		}
		go g.watch()
		time.Sleep(lease/10 + time.Second)
		synctest.Wait()
		if want := (fakeHold{l}).Deadline().Add(-killLead(lease)); group.limit != want {
			t.Errorf("at first the warden knows %v, want %v", group.limit, want)
		}
		time.Sleep(lease/3 - lease/10)
		l.renew(lease)
		time.Sleep(lease/10 + time.Second)
		synctest.Wait()
		if want := (fakeHold{l}).Deadline().Add(-killLead(lease)); group.limit != want {
			t.Errorf("the warden knows %v, want %v", group.limit, want)
		}
		group.finish()
	})
}

func TestWithoutGraceTheCommandEndsBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		l, group := newFakeLease(lease), newFakeGroup(syscall.SIGKILL)
		g := &guard{
			name: "n", lease: l, hold: fakeHold{l}, lead: killLead(lease), look: lease / 10,
			group: group, troubles: new(lastTrouble), errOut: new(bytes.Buffer),
		}
		g.watch()
		if want := []string{"killed after 29.95s"}; !slices.Equal(group.got, want) {
			t.Errorf("signals: %q, want %q", group.got, want)
		}
	})
}

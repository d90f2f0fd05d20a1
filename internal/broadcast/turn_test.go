package broadcast

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

// turns is a Store and a Turnstile, of which the test says whose turn it is.
type turns struct {
	fake.Store
	places []*standing

	mu     sync.Mutex // guards what follows, and the counts of places
	answer string     // to a request; "": granted
	told   int        // of a release
	void   bool       // there is no line
	empty  bool       // there is nobody else
}

type standing struct {
	l      *turns
	come   chan struct{}
	looks  int
	leaves int
}

func (l *turns) Stand(*mutex.Lock) Turn {
	s := &standing{l: l, come: make(chan struct{})}
	l.places = append(l.places, s)
	if l.void {
		close(s.come)
	}
	return s
}

func (s *standing) Come() <-chan struct{} { return s.come }
func (s *standing) Look(bool)             { s.count(&s.looks) }
func (s *standing) Behind() bool          { return !s.l.empty }
func (s *standing) Void() bool            { return s.l.void }
func (s *standing) Leave()                { s.count(&s.leaves) }

func (s *standing) count(n *int) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	*n++
}

func (s *standing) looked() int {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.looks
}

// say changes the answer.
func (l *turns) say(answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

const (
	isHeld = "H 1 1000 s:1 77 me" // for a second
	isDown = "down"
)

// standIn returns a lock with a turnstile, whose tenures are passed on for streak. In fake time.
func standIn(t *testing.T, streak time.Duration) (*turns, *mutex.Mutex) {
	l := &turns{}
	l.OnAsk = func(*mutex.Acquisition) wire.Outcome {
		l.mu.Lock()
		answer := l.answer
		l.mu.Unlock()
		switch answer {
		case "":
			return l.Granted()
		case isDown:
			return wire.Outcome{Sent: time.Now(), Err: io.EOF}
		}
		return wire.Outcome{Sent: time.Now(), Reply: answer}
	}
	l.OnRelease = func(*protocol.Release) wire.Outcome {
		return wire.Outcome{Sent: time.Now(), Reply: fmt.Sprint("R ", l.told)}
	}
	kind := l.Kind(NewLine(l))
	s := l.Session(t)
	s.Streak = streak
	m := mutex.New(s, kind, "x", mutex.Config{})
	return l, &m
}

// left fails the test unless there were so many places, and all but the last have been left, that one as it says.
func (l *turns) left(t *testing.T, when string, places int, last bool) {
	t.Helper()
	synctest.Wait()
	if len(l.places) != places {
		t.Fatalf("%s: %d places, want %d", when, len(l.places), places)
	}
	for i, s := range l.places {
		if want := last || i < places-1; s.leaves > 0 != want {
			t.Errorf("%s: place %d of %d has been left: %v", when, i+1, places, !want)
		}
	}
}

// pass lets time pass, and all that it wakes be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// goTake is take in a goroutine of its own.
func goTake(t *testing.T, m *mutex.Mutex) <-chan *mutex.Hold {
	next := make(chan *mutex.Hold, 1)
	go func() { next <- take(t, m) }()
	synctest.Wait()
	return next
}

func TestOneThatNobodyIsInTheWayOfDoesNotStandInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		for range 3 {
			unlock(t, take(t, m))
		}
		l.say(isHeld)
		if _, err := acquire(t, m, bg, true); !is(err, failure.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		l.left(t, "in the end", 0, false)
		l.Want(t, "in the end", "ask", "release 1", "ask", "release 2001", "ask", "release 4001", "ask")
	})
}

func TestOneThatWasRefusedAsksAgainWhenItsTurnHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		next := goTake(t, m)
		l.left(t, "refused", 1, false)
		pass(10*lookTime + 1)
		l.Want(t, "as it stands", "ask")
		if n := l.places[0].looked(); n != 10 {
			t.Errorf("it has looked %d times", n)
		}
		close(l.places[0].come) // and the lock is held still
		synctest.Wait()
		l.Want(t, "as its turn has come", "ask")
		pass(time.Second - 1)
		l.say("")
		pass(1)
		synctest.Wait()
		l.Want(t, "as the lock is free", "ask")
		hold := <-next
		l.left(t, "as it holds", 1, false)
		pass(showTime - 1)
		l.left(t, "as it holds", 1, false)
		unlock(t, hold)
		l.left(t, "as it was released", 1, true)
	})
}

// All would sleep with it.
func TestTheFirstInLineAsksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say("H 1 60000 s:1 77 me")
		next := goTake(t, m)
		close(l.places[0].come)
		synctest.Wait()
		l.Want(t, "at first", "ask", "ask")
		for range 3 {
			pass(fake.Config().Lease / 3)
			l.Want(t, "after a while", "ask")
		}
		l.say("")
		unlock(t, <-next)
	})
}

func TestAnotherComesWhereALockIsHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		next := goTake(t, m)
		l.say("")
		close(l.places[0].come)
		hold := <-next
		pass(showTime)
		l.left(t, "then", 1, true)
		unlock(t, hold)
	})
}

func TestATurnGoesOnForAStreak(t *testing.T) {
	const streak = 10 * returnTime
	for _, c := range []struct {
		what   string
		holds  time.Duration
		away   time.Duration
		goesOn bool
	}{
		{"it comes back at once", 0, 0, true},
		{"it comes back in a moment", streak - 1, returnTime - 1, true},
		{"it comes back too late", 0, returnTime + 1, false},
		{"its turn was long", streak, 0, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, m := standIn(t, streak)
				l.say(isHeld)
				next := goTake(t, m)
				l.say("")
				close(l.places[0].come)
				hold := <-next
				pass(c.holds)
				unlock(t, hold)
				pass(c.away)
				next = goTake(t, m)
				if !c.goesOn { // others stand in line: it must, too
					l.left(t, "again", 2, false)
					close(l.places[1].come)
				}
				l.left(t, "then", len(l.places), false)
				unlock(t, <-next)
				pass(restMemory + 1)
				l.left(t, "in the end", len(l.places), true)
			})
		})
	}
}

// The next in line is on its way while the lock is released. Otherwise it would begin to ask when the release has been answered.
func TestAPlaceIsLeftBeforeTheReleaseUnlessItMayBeNeededAgain(t *testing.T) {
	const streak = 10 * returnTime
	for holds, want := range map[time.Duration]bool{streak - 1: false, streak: true} {
		synctest.Test(t, func(t *testing.T) {
			l, m := standIn(t, streak)
			l.say(isHeld)
			next := goTake(t, m)
			l.say("")
			close(l.places[0].come)
			hold := <-next
			pass(holds)
			release := l.OnRelease
			l.OnRelease = func(r *protocol.Release) wire.Outcome {
				l.left(t, fmt.Sprintf("at the release, after %v", holds), 1, want)
				return release(r)
			}
			unlock(t, hold)
			pass(restMemory + 1)
		})
	}
}

func TestAfterItsTurnASessionStandsBehindOthersBeforeItAsks(t *testing.T) {
	for _, c := range []struct {
		what   string
		waited bool // it stood in line before
		empty  bool
		told   int
		away   time.Duration
		stands bool
	}{
		{what: "nobody waits"},
		{what: "others are told", told: 1, stands: true},
		{what: "others stood there, too", waited: true, stands: true},
		{what: "nobody stood there", waited: true, empty: true},
		{what: "that was long ago", waited: true, told: 1, away: restMemory + 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, m := standIn(t, 0)
				l.told, l.empty = c.told, c.empty
				if c.waited {
					l.say(isHeld)
				}
				next := goTake(t, m)
				l.say("")
				for _, s := range l.places {
					close(s.come)
				}
				unlock(t, <-next)
				pass(c.away)
				before := len(l.places)
				l.Requests()
				next = goTake(t, m)
				if stands := len(l.places) > before; stands != c.stands {
					t.Fatalf("it stands in line: %v", stands)
				}
				if c.stands {
					l.Want(t, "as it stands")
					if n := l.places[before].looked(); n != 0 {
						t.Errorf("it has looked %d times", n)
					}
					pass(firstLook)
					synctest.Wait()
					if n := l.places[before].looked(); n != 1 { // or the error of its wait could not name the holder
						t.Errorf("it has looked %d times", n)
					}
					close(l.places[before].come)
				}
				unlock(t, <-next)
			})
		})
	}
}

func TestOneThatGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, come := range []bool{false, true} {
			l, m := standIn(t, 0)
			l.say(isHeld)
			ctx, cancel := context.WithCancel(bg)
			failed := make(chan error)
			go func() {
				_, err := acquire(t, m, ctx, false)
				failed <- err
			}()
			synctest.Wait()
			if come {
				close(l.places[0].come)
			}
			l.left(t, "before", 1, false)
			cancel()
			if err := <-failed; !is(err, "locked by s:1") || !is(err, context.Canceled) {
				t.Errorf("turn come %v: %v", come, err)
			}
			l.left(t, "after", 1, true)
		}
	})
}

// The place is the session's: whoever waits behind the goroutine that gives up goes on in it.
func TestAPlaceInLineGoesToTheNextGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		ctx, cancel := context.WithCancel(bg)
		failed := make(chan error)
		go func() {
			_, err := acquire(t, m, ctx, false)
			failed <- err
		}()
		synctest.Wait()
		next := goTake(t, m)
		cancel()
		<-failed
		l.left(t, "as one gave up", 1, false)
		l.say("")
		close(l.places[0].come)
		unlock(t, <-next)
		l.left(t, "in the end", 1, true)
	})
}

// It may reach the turnstile, and no majority: others may.
func TestOneWhoseRequestsAreNotAnsweredLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		next := goTake(t, m)
		l.say(isDown)
		close(l.places[0].come)
		pass(time.Second)
		l.left(t, "after an outage", 2, false)
		l.say("")
		close(l.places[1].come)
		unlock(t, <-next)
		l.left(t, "in the end", 2, true)
	})
}

// Without a line, those that wait are told, or rest until the lease is over.
func TestWithoutALineOneRestsBeforeItAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.void = true
		l.say(isHeld)
		next := goTake(t, m)
		pass(3*time.Second + 1)
		synctest.Wait()
		if n := len(slices.DeleteFunc(l.Requests(), func(r string) bool { return r != "ask" })); n != 5 { // once before it stood there
			t.Errorf("it has asked %d times", n)
		}
		l.say("")
		unlock(t, <-next)
		l.left(t, "in the end", len(l.places), true)
	})
}

// Whoever waits behind a goroutine that stands in line is told that the lock is held, however long ago that was learned: it is
// the turn of others, and nobody here asks who has the lock.
func TestOneBehindAnotherThatStandsInLineIsToldThatTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		first := goTake(t, m)
		pass(5 * time.Second) // longer than the lease that it was told of
		_, hold, err := m.Acquire(bg, mutex.Config{Wait: 300 * time.Millisecond, Bounded: true}, false)
		if !is(err, failure.ErrLocked) {
			t.Errorf("it waited behind one that stands in line: %v, %v", hold, err)
		}
		l.say("")
		close(l.places[0].come)
		unlock(t, <-first)
		// Now nobody does, and what was learned then is of no use.
		l.say(isDown)
		_, hold, err = m.Acquire(bg, mutex.Config{Wait: 300 * time.Millisecond, Bounded: true}, false)
		if err == nil || is(err, failure.ErrLocked) {
			t.Errorf("nobody stands in line, and Redis is down: %v, %v", hold, err)
		}
	})
}

// What was learned by the first goroutine that stood in a place is known to those that go on in it.
func TestWhatWasLearnedInAPlaceIsKnownWhenAnotherGoesOnInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := standIn(t, 0)
		l.say(isHeld)
		ctx, cancel := context.WithCancel(bg)
		failed := make(chan error)
		go func() {
			_, err := acquire(t, m, ctx, false)
			failed <- err
		}()
		pass(5 * time.Second) // longer than the lease that it was told of
		next := goTake(t, m)
		go func() {
			_, _, err := m.Acquire(bg, mutex.Config{Wait: 300 * time.Millisecond, Bounded: true}, false)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		<-failed
		if err := <-failed; !is(err, failure.ErrLocked) {
			t.Errorf("it waited behind one that stands in line in another's stead: %v", err)
		}
		l.say("")
		close(l.places[0].come)
		unlock(t, <-next)
	})
}

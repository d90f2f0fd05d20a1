package mutex

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
)

// taking is an acquisition that has been granted what the test says. It has its Leave.
func (l *store) taking(t *testing.T) *Acquisition {
	t.Helper()
	in, err := l.m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	a := NewAcquisition(bg, in, Config{})
	a.NewAttempt()
	return a
}

func TestAGrantThatComesWhenItsLeaseIsOverIsReleased(t *testing.T) {
	valid := protocol.Valid(fake.Config().Lease)
	for _, c := range []struct {
		age  time.Duration // of the grant when it comes
		late bool
	}{{0, false}, {valid - 1, false}, {valid, true}, {time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := newStore(t)
			a := l.taking(t)
			e, begun, err := a.Take(time.Now().Add(-c.age), 7)
			synctest.Wait()
			if begun == c.late || errors.Is(err, ErrTooLate) != c.late {
				t.Fatalf("%v old: begun %v, %v", c.age, begun, err)
			}
			if c.late {
				l.Want(t, c.age.String(), "release any")
			} else {
				l.Want(t, c.age.String())
				unlock(t, holdOf(e))
			}
			if a.Lock.Leave(); !l.forgotten() {
				t.Errorf("%v old: the lock is not forgotten", c.age)
			}
		})
	}
}

func TestAGrantWithoutATokenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		a := l.taking(t)
		defer a.Lock.Leave()
		if _, begun, err := a.Take(time.Now(), 0); begun || err == nil {
			t.Errorf("begun %v, %v", begun, err)
		}
		synctest.Wait()
		l.Want(t, "then", "release any")
	})
}

func TestOfTwoGrantsTheOneWithTheHigherTokenIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		_, first := l.lock(t, bg, Config{})
		a := l.taking(t)
		defer a.Lock.Leave()
		l.Requests()
		if _, begun, err := a.Take(time.Now(), 0); begun || !errors.Is(err, ErrTooLate) || first.Err() != nil {
			t.Errorf("a lower token: begun %v, %v; the other: %v", begun, err, first.Err())
		}
		e, begun, err := a.Take(time.Now(), 2001)
		if !begun || err != nil {
			t.Fatalf("a higher token: begun %v, %v", begun, err)
		}
		if err := first.Err(); !errors.Is(err, failure.ErrLost) {
			t.Errorf("the other: %v", err)
		}
		unlock(t, holdOf(e))
		synctest.Wait()
	})
}

func holdOf(e *Entry) *Hold {
	_, hold := e.Handle(bg)
	return hold
}

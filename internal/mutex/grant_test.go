package mutex_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/fake"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
)

// taking is an acquisition that has been granted what it is told.
func (l *lock) taking(t *testing.T) *mutex.Acquisition {
	a := mutex.NewAcquisition(bg, l.enter(t), mutex.Config{}, mutex.Alone)
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
			l := newLock(t)
			e, begun, err := l.taking(t).Take(time.Now().Add(-c.age), "7")
			synctest.Wait()
			if c.late {
				if begun || !errors.Is(err, mutex.ErrTooLate) {
					t.Errorf("%v late: begun %v, %v", c.age, begun, err)
				}
				l.Want(t, c.age.String(), "release any")
				return
			}
			if !begun || err != nil || e.State().String() != "held" {
				t.Fatalf("%v old: begun %v, %v", c.age, begun, err)
			}
			l.Want(t, c.age.String())
			unlock(t, e.Handle())
		})
	}
}

func TestAGrantWithoutATokenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t)
		if _, begun, err := l.taking(t).Take(time.Now(), "0"); begun || err == nil {
			t.Errorf("begun %v, %v", begun, err)
		}
		synctest.Wait()
		l.Want(t, "then", "release any")
	})
}

func TestOfTwoGrantsTheOneWithTheHigherTokenIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t)
		_, first := l.lock(t, bg, mutex.Config{})
		a := l.taking(t)
		l.Requests()
		if _, begun, err := a.Take(time.Now(), "0"); begun || !errors.Is(err, mutex.ErrTooLate) || first.Err() != nil {
			t.Errorf("a lower token: begun %v, %v; the other: %v", begun, err, first.Err())
		}
		e, begun, err := a.Take(time.Now(), "2001")
		if !begun || err != nil {
			t.Fatalf("a higher token: begun %v, %v", begun, err)
		}
		if err := first.Err(); !errors.Is(err, failure.ErrLost) {
			t.Errorf("the other: %v", err)
		}
		unlock(t, e.Handle())
		synctest.Wait()
	})
}

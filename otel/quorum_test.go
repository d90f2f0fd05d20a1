package otellock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestTheServersOfARedLockAreMeasured(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		s := newStage(t)
		wires := []*testlock.Wire{testlock.NewWire(t), testlock.NewWire(t), testlock.NewWire(t)}
		var sessions []*rlock.Session
		for _, w := range wires {
			sessions = append(sessions, s.session(w))
		}
		q, err := multilock.NewQuorum(sessions)
		testlock.Must(t, err)
		end, err := s.observer.ObserveQuorum(q)
		testlock.Must(t, err)
		want := func(n int64) {
			t.Helper()
			s.want(n, "lockline.lock.servers", "lockline.lock.kind=redlock", "lockline.lock.pattern=*")
		}
		want(0)
		_, hold := testlock.Lock(t, q.New("x"), t.Context())
		synctest.Wait()
		want(3)
		wires[0].Kill()
		time.Sleep(time.Minute)
		want(2)
		testlock.Unlock(t, hold)
		want(0)
		testlock.Must(t, end())
	})
}

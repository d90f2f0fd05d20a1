package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nowhere is a client that nothing is asked of.
type nowhere struct{ Client }

// memberSessions are sessions of as many servers.
func memberSessions(t *testing.T, n int) (all []*Session) {
	t.Helper()
	for range n {
		s, err := NewSession(&nowhere{}, SessionConfig{Prefix: "p", Lease: time.Minute, Liveness: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, s) })
		all = append(all, s)
	}
	return all
}

func end(t *testing.T, s *Session) {
	t.Helper()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestAQuorumWithAClosedSessionIsRefusedEachTime(t *testing.T) {
	for i := range 3 { // whose ids are in any order
		for _, before := range []bool{false, true} {
			members := memberSessions(t, 3)
			if before { // there was a quorum of them
				if _, err := NewQuorum(members, 0); err != nil {
					t.Fatal(err)
				}
			}
			end(t, members[i])
			for try := range 2 {
				if _, err := NewQuorum(members, 0); !errors.Is(err, ErrClosed) {
					t.Errorf("session %d is closed, try %d: %v", i, try, err)
				}
			}
			for j, m := range members {
				if n := len(m.quorums); n > 0 {
					t.Errorf("session %d is in %d quorums", j, n)
				}
			}
		}
	}
}

func TestQuorumsOfTheSameSessionsAreOne(t *testing.T) {
	m := memberSessions(t, 4)
	quorum := func(timeout time.Duration, members ...*Session) *Session {
		t.Helper()
		q, err := NewQuorum(members, timeout)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	one := quorum(0, m[0], m[1], m[2])
	if one != quorum(0, m[2], m[0], m[1]) {
		t.Error("in another order it is another one")
	}
	for _, other := range []*Session{quorum(time.Second, m[0], m[1], m[2]), quorum(0, m[0], m[1]), quorum(0, m[0], m[1], m[3])} {
		if one == other {
			t.Error("others are the same")
		}
	}
}

func TestAQuorumThatHasEndedIsForgottenByThoseThatLive(t *testing.T) {
	const n = 1000
	living := memberSessions(t, 2)
	var collected atomic.Int64
	for range n {
		func() {
			s, err := NewSession(&nowhere{}, living[0].SessionConfig)
			if err != nil {
				t.Fatal(err)
			}
			q, err := NewQuorum([]*Session{living[0], s, living[1]}, 0)
			if err != nil {
				t.Fatal(err)
			}
			runtime.AddCleanup(q, func(int) { collected.Add(1) }, 0)
			end(t, s)
		}()
	}
	for _, m := range living {
		if n := len(m.quorums); n > 0 {
			t.Errorf("%d ended quorums are kept", n)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); collected.Load() < n; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d ended quorums are still referred to", n-collected.Load(), n)
		}
	}
	runtime.KeepAlive(living)
}

func TestQuorumsAreMadeAndEndedAtOnce(t *testing.T) {
	for range 20 {
		m := memberSessions(t, 5)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				for j := range 20 {
					some := []*Session{m[(i+j)%5], m[(i+j+1)%5], m[(i+j+2)%5]}
					if j%2 == 1 {
						slices.Reverse(some)
					}
					if _, err := NewQuorum(some, 0); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() { end(t, m[0]) })
		wg.Go(func() { end(t, m[1]) })
		wg.Wait()
		for _, s := range m[2:] {
			end(t, s)
		}
	}
}

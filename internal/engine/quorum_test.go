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

	"github.com/lockline/lockline/internal/wire"
)

// nowhere is a client that nothing is asked of.
type nowhere struct{ wire.Client }

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

// From the instant at which a member may be joined, whatever ends the hold says for how long the request to join may arrive there.
func TestAReleaseKnowsUntilWhenARequestToJoinMayArrive(t *testing.T) {
	members := memberSessions(t, 3)
	s, err := NewQuorum(members, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := newKeys("p", "q", "x")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, m := range members {
		m.clock.Heard(1e15, start)
	}
	sc := wire.NewScript("")
	l := &lock{s: s, keys: keys, p: &Protocol{Kind: "q", Lock: sc, Release: sc}}
	b := &ballot{q: s.quorum, l: l, start: start, lease: time.Minute, overdue: true, seats: make([]seat, 3)}
	b.grant = s.newAttempt()
	b.grant.token, b.grant.ballot = "1", b
	for i := range b.seats[1:] {
		b.seats[1+i] = seat{asked: true, vote: 'G', until: start.Add(time.Minute), kept: start}
	}
	end := func() int64 {
		late, _ := memberCopy(&release{l: l, grant: b.grant}, b, 0).(*release)
		return late.late
	}
	for range 2 { // also with one of them answered, while another is on its way
		b.seats[0].until = time.Time{}
		if !b.mayJoin(0, start) {
			t.Fatal("it may not be joined")
		}
		known := end()
		args := (&poll{b, 0, 9, "1"}).Request(time.Now().Add(time.Second)).Args()
		if notAfter, _ := args[7].(int64); notAfter == 0 || known < notAfter {
			t.Errorf("a release then knows of requests until %d, and the one to join may arrive until %v", known, args[7])
		}
		b.joined(0, wire.Outcome{Reply: "G 1000000000000000 9 +", Sent: time.Now()}, 9)
		if answered := end(); answered < known {
			t.Errorf("once it is answered, a release knows of requests until %d; an earlier copy may arrive until %d", answered, known)
		}
	}
}

// Answers may come in another order than they were sent in.
func TestAnAnswerOfBeforeAServerLostTheGrantDoesNotBringItBack(t *testing.T) {
	b := &ballot{q: &quorum{need: 1}, seats: make([]seat, 1)}
	now := time.Now()
	for _, answer := range []struct {
		after time.Duration
		reply string
		holds bool
	}{{1, "K", true}, {3, "L", false}, {2, "K", false}, {4, "K", true}} {
		sent := now.Add(answer.after * time.Second)
		b.kept(0, wire.Outcome{Reply: answer.reply, Sent: sent}, time.Minute)
		if holds := b.deadline().After(sent); holds != answer.holds || b.renewed(now) != answer.holds {
			t.Errorf("after %q to a request of second %d it is held: %v", answer.reply, answer.after, holds)
		}
	}
}

package quorum

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// From the instant at which a member may be joined, whatever ends the hold says for how long the request to join may arrive there.
func TestAReleaseKnowsUntilWhenARequestToJoinMayArrive(t *testing.T) {
	q := makeQuorum(t, 0, memberSessions(t, 3)...)
	m := q.Mutex("x", mutex.Config{})
	l, err := m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Leave()
	start := time.Now()
	for _, m := range q.members {
		m.Clock.Heard(1e15, start)
	}
	b := &round{q: q, l: l, start: start, lease: time.Minute, state: closed, votes: make([]vote, 3)}
	b.grant = protocol.Grant{Owner: "s:1", Token: "1", Vote: &b.self}
	for i := range b.votes[1:] {
		b.votes[1+i] = vote{asked: true, Answer: protocol.Answer{Status: protocol.Granted}, until: start.Add(time.Minute), kept: start}
	}
	end := func() int64 { return b.releaseAt(&protocol.Release{Grant: b.grant}, 0).Late }
	for range 2 { // also with one of them answered, while another is on its way
		b.votes[0].until = time.Time{}
		if !b.mayJoin(0, start) {
			t.Fatal("it may not be joined")
		}
		known := end()
		args := (&ballot{b, 0, 9, joins}).Request(time.Now().Add(time.Second)).Args()
		if notAfter, _ := args[7].(int64); notAfter == 0 || known < notAfter {
			t.Errorf("a release then knows of requests until %d, and the one to join may arrive until %v", known, args[7])
		}
		b.joined(0, wire.Outcome{Reply: "G 1000000000000000 9 +", Sent: time.Now()}, 9)
		if answered := end(); answered < known {
			t.Errorf("once it is answered, a release knows of requests until %d; an earlier copy may arrive until %d", answered, known)
		}
	}
}

func TestAMemberIsJoinedOnlyWhereAMajorityWithoutItWasRenewed(t *testing.T) {
	q := makeQuorum(t, 0, memberSessions(t, 3)...)
	start := time.Now()
	for _, c := range []struct {
		what  string
		may   bool
		state roundState
		votes []vote
	}{
		{"the two others were renewed", true, closed, []vote{{}, {kept: start}, {kept: start}}},
		{"one of them was renewed before", false, closed, []vote{{}, {kept: start}, {kept: start.Add(-1)}}},
		{"it has the grant", false, closed, []vote{{until: start}, {kept: start}, {kept: start}}},
		{"its vote is not in", false, decided, []vote{{asked: true}, {kept: start}, {kept: start}}},
		{"its vote did not come in time", true, closed, []vote{{asked: true}, {kept: start}, {kept: start}}},
	} {
		b := &round{q: q, state: c.state, votes: c.votes}
		if may := b.mayJoin(0, start); may != c.may {
			t.Errorf("%s: it may be joined: %v", c.what, may)
		}
	}
}

// A request to join may be answered after a renewal that was sent later.
func TestAJoinThatIsAnsweredLateDoesNotShortenTheHold(t *testing.T) {
	q := makeQuorum(t, 0, memberSessions(t, 3)...)
	start := time.Now()
	renewed := start.Add(time.Hour)
	b := &round{q: q, lease: time.Minute, votes: []vote{{until: renewed}, {until: renewed}, {}}}
	b.joined(0, wire.Outcome{Reply: "G 1000000000000000 9 +", Sent: start}, 9)
	if until := b.deadline(); !until.Equal(renewed) {
		t.Errorf("it is held until %v after the start, want an hour", until.Sub(start))
	}
}

// Answers may come in another order than they were sent in.
func TestAnAnswerOfBeforeAServerLostTheGrantDoesNotBringItBack(t *testing.T) {
	b := &round{q: &Quorum{need: 1}, votes: make([]vote, 1)}
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

// The first holder may have asked for a short lease, and a nested one has the tenure renewed.
func TestAMemberIsJoinedForTheLeaseOfRenewals(t *testing.T) {
	q := makeQuorum(t, 0, memberSessions(t, 3)...)
	m := q.Mutex("x", mutex.Config{})
	l, err := m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Leave()
	start := time.Now()
	b := &round{q: q, l: l, start: start, lease: time.Second, state: closed, votes: make([]vote, 3)}
	b.grant = protocol.Grant{Owner: "s:1", Token: "1", Vote: &b.self}
	b.votes[1], b.votes[2] = vote{asked: true, kept: start, until: start.Add(time.Minute)}, vote{asked: true, kept: start, until: start.Add(time.Minute)}
	if !b.mayJoin(0, start) {
		t.Fatal("it may not be joined")
	}
	if lease := (&ballot{b, 0, 9, joins}).Request(start).Args()[6]; lease != b.q.s.Lease.Milliseconds() {
		t.Errorf("joined for %v ms, and renewed for %v", lease, b.q.s.Lease)
	}
	if lease := (&ballot{b, 0, 9, once}).Request(start).Args()[6]; lease != b.lease.Milliseconds() {
		t.Errorf("asked for %v ms instead of %v", lease, b.lease)
	}
	b.joined(0, wire.Outcome{Reply: "G 1000000000000000 9 +", Sent: start}, 9)
	if until := b.votes[0].until; until.Before(start.Add(b.q.s.Lease / 2)) {
		t.Errorf("valid there for %v", until.Sub(start))
	}
}

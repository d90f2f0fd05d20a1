package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

const (
	timeout = 100 * time.Millisecond // for one server
	inTime  = timeout / 2
	tooLate = 10 * timeout
)

// Votes.
const (
	granted = "G 1000000000000000 9 +"
	refused = "H 1000000000000000 60000 s:1 77 nonce me"
)

// server is one that answers as a test says.
type server struct {
	vote    string        // "": no answer
	after   time.Duration // the vote comes
	accept  string        // the answer to a higher token
	later   time.Duration // that comes
	release string        // the answer to a release
	member  *session.Session

	mu       sync.Mutex // guards what follows
	requests []string
	offered  int64     // the higher token
	used     any       // of the attempt's tokens, as the last release says
	released time.Time // when the last release came
}

func (s *server) answer(c fake.Call) (string, error) {
	switch {
	case c.Is(scripts.Accept):
		s.note("accept", func() { s.offered = c.Argv[1].(int64) })
		time.Sleep(s.later)
		return s.accept, nil
	case c.Is(scripts.Release):
		s.note("release", func() { s.released, s.used = time.Now(), c.Argv[5] })
		return s.release, nil
	}
	s.note("lock", func() {})
	time.Sleep(s.after)
	if s.vote == "" {
		return "", &net.OpError{Op: "dial", Err: io.EOF}
	}
	return s.vote, nil
}

func (s *server) note(request string, more func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	more()
}

// got are the requests since the last call, in their order.
func (s *server) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(s.requests, " ")
	s.requests = nil
	return got
}

// acquisition is one of a RedLock on the servers. In fake time.
func acquisition(t *testing.T, servers ...*server) (*Quorum, *mutex.Acquisition) {
	t.Helper()
	var members []*session.Session
	for _, s := range servers {
		s.member = fake.Session(t, fake.Client(t, s.answer))
		members = append(members, s.member)
	}
	q := makeQuorum(t, timeout, members...)
	m := q.Mutex("x", mutex.Config{})
	l, err := m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Leave)
	return q, mutex.NewAcquisition(context.Background(), l, mutex.Config{})
}

// ask asks for the lock, and says how long that took.
func ask(q *Quorum, a *mutex.Acquisition) (wire.Outcome, time.Duration) {
	start := time.Now()
	o := q.Ask(a, wire.Tries, new(atomic.Bool))
	return o, time.Since(start)
}

// voted is the server's vote in a round, and how far that has come.
func (s *server) voted(b *round) (roundState, protocol.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.q.members, func(m *member) bool { return m.Session == s.member })
	return b.state, b.votes[i].Status
}

func TestARoundIsDecidedByAMajorityAndClosedWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &server{vote: granted, after: tooLate}
		q, a := acquisition(t, &server{vote: granted}, &server{vote: granted, after: inTime}, slow)
		o, took := ask(q, a)
		if o.Err != nil || !strings.HasPrefix(o.Reply, "G ") || took != inTime {
			t.Errorf("%q, %v after %v", o.Reply, o.Err, took)
		}
		b := roundOf(&a.Grant)
		for _, c := range []struct {
			after time.Duration // the first request
			state roundState
			vote  protocol.Status
		}{
			{inTime, decided, protocol.None},
			{timeout, closed, protocol.None},
			{tooLate, closed, protocol.Granted}, // it is held there, too
		} {
			time.Sleep(c.after - time.Since(b.start))
			synctest.Wait()
			if state, vote := slow.voted(b); state != c.state || vote != c.vote {
				t.Errorf("after %v: %v, the last vote %q", c.after, state, vote)
			}
		}
	})
}

func TestARoundIsLostWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a := acquisition(t, &server{vote: granted, release: "R"}, &server{vote: refused}, &server{vote: granted, after: tooLate, release: "R"})
		if o, took := ask(q, a); !strings.HasPrefix(o.Reply, "H ") || took != timeout {
			t.Errorf("%q, %v after %v", o.Reply, o.Err, took)
		}
	})
}

func TestWhatALostRoundWasGrantedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder := func() *server { return &server{vote: refused} }
		for _, c := range []struct {
			what     string
			granting *server
			others   []*server
			after    time.Duration // it is given back
		}{
			{"the vote came before the round was lost", &server{vote: granted}, []*server{holder(), holder()}, 0},
			{"after that", &server{vote: granted, after: inTime}, []*server{holder(), holder()}, inTime},
			{"after the round was closed", &server{vote: granted, after: tooLate}, []*server{holder(), holder()}, timeout},
		} {
			c.granting.release = "R"
			q, a := acquisition(t, append(c.others, c.granting)...)
			start := time.Now()
			if o, _ := ask(q, a); !strings.HasPrefix(o.Reply, "H ") {
				t.Errorf("%s: %q, %v", c.what, o.Reply, o.Err)
			}
			time.Sleep(2 * tooLate)
			if got := c.granting.got(); got != "lock release" || c.granting.released.Sub(start) != c.after {
				t.Errorf("%s: %s, %v after the first request", c.what, got, c.granting.released.Sub(start))
			}
			for _, s := range c.others {
				if got := s.got(); got != "lock" {
					t.Errorf("%s: of a server that refused: %s", c.what, got)
				}
			}
		}
	})
}

func TestAReleaseWaitsForTheVotesThatAreNotIn(t *testing.T) {
	for _, c := range []struct {
		what     string
		last     *server
		requests string
		after    time.Duration // the outcome of the release is known
		reply    string
	}{
		{"granted in time", &server{vote: granted, after: inTime}, "lock release", inTime, "R"},
		{"refused in time", &server{vote: refused, after: inTime}, "lock", inTime, "L"},
		{"granted too late", &server{vote: granted, after: tooLate}, "lock release", timeout, "R"},
		{"refused too late", &server{vote: refused, after: tooLate}, "lock release", timeout, "R"}, // that is not known then
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.last.release = "R"
				q, a := acquisition(t, &server{vote: granted, release: "R"}, &server{vote: granted, release: "L"}, c.last)
				if o, took := ask(q, a); !strings.HasPrefix(o.Reply, "G ") || took != 0 {
					t.Fatalf("%q, %v after %v", o.Reply, o.Err, took)
				}
				r := a.Lock.ReleaseRequest(a.Grant)
				o := q.Release(context.Background(), &r, 1)
				if after := time.Since(roundOf(&a.Grant).start); o.Reply != c.reply || after != c.after {
					t.Errorf("%q, %v after %v", o.Reply, o.Err, after)
				}
				time.Sleep(2 * tooLate)
				if got := c.last.got(); got != c.requests {
					t.Errorf("of the last server: %s", got)
				}
			})
		})
	}
}

func TestAMajorityThatHasStoredAHigherTokenIsOfferedAnother(t *testing.T) {
	const stored = int64(1e15) + 5000
	vote := fmt.Sprintf("G 1000000000000000 %d -", stored)
	for _, accept := range []string{"A", "L"} {
		synctest.Test(t, func(t *testing.T) {
			with := func() *server { return &server{vote: vote, after: inTime, accept: accept, release: "R"} }
			servers := []*server{with(), with(), {vote: refused}}
			q, a := acquisition(t, servers...)
			o, _ := ask(q, a)
			synctest.Wait()
			offered := servers[0].offered
			if offered <= stored || servers[1].offered != offered || servers[2].offered != 0 {
				t.Errorf("stored was %d, offered are %d, %d, and %d where it was refused", stored, offered, servers[1].offered, servers[2].offered)
			}
			if accept == "A" {
				if token := fmt.Sprint("G 0 ", offered); o.Reply != token {
					t.Errorf("%q, %v, want %q", o.Reply, o.Err, token)
				}
			} else if got := servers[0].got(); !strings.HasPrefix(o.Reply, "H ") || strings.Count(got, "release") != 1 {
				t.Errorf("not accepted: %q, %v; %s", o.Reply, o.Err, got)
			}
		})
	}
}

// To give back what was offered down to the first proposal would forget the tokens of others in between.
func TestALostSecondRoundGivesBackWhatItReservedAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(accept string) *server {
			return &server{vote: "G 1000000000000000 1000000000005000 -", after: inTime, accept: accept, release: "R"}
		}
		raised, not := with("A"), with("L")
		not.later = inTime // else the round is lost before it is known that the other one has stored the token
		q, a := acquisition(t, raised, not, &server{vote: refused})
		o, _ := ask(q, a)
		synctest.Wait()
		if o.Err == nil && strings.HasPrefix(o.Reply, "G") || fmt.Sprint(raised.used) != fmt.Sprint(raised.offered) || not.used != "" {
			t.Errorf("%q, %v; offered %d, given back down to %v, and %q where it was not accepted", o.Reply, o.Err, raised.offered, raised.used, not.used)
		}
	})
}

func TestAServerWithAnIncredibleTokenHasNoVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := &server{vote: "G 1000000000000000 1100000000000000 -", release: "R"} // years above the clocks
		q, a := acquisition(t, &server{vote: granted, after: inTime, release: "R"}, &server{vote: granted, after: inTime, release: "R"}, odd)
		o, _ := ask(q, a)
		if _, vote := odd.voted(roundOf(&a.Grant)); o.Err != nil || vote != failed {
			t.Errorf("%v; the vote is %q", o.Err, vote)
		}
		r := a.Lock.ReleaseRequest(a.Grant)
		q.Release(context.Background(), &r, 1)
		synctest.Wait()
		if got := odd.got(); got != "lock release" {
			t.Errorf("what it has granted is not given back: %s", got)
		}
	})
}

func TestASlowServerIsAskedAgainOnceItHasAnsweredAPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &server{vote: granted, after: tooLate}
		q, a := acquisition(t, &server{vote: granted}, &server{vote: granted}, slow)
		asked := func() bool {
			t.Helper()
			if o, took := ask(q, a); o.Err != nil || took != 0 {
				t.Errorf("%q, %v after %v", o.Reply, o.Err, took)
			}
			synctest.Wait()
			return slow.got() != ""
		}
		if !asked() {
			t.Error("not asked at first")
		}
		time.Sleep(timeout)
		synctest.Wait()
		if asked() {
			t.Error("asked although it is slow")
		}
		time.Sleep(probeEvery + 1)
		if asked() { // this sends the PING
			t.Error("asked before it has answered")
		}
		if !asked() {
			t.Error("not asked although it has answered")
		}
	})
}

func TestTooFewAnswersAreAnErrorAfterSomeTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &server{vote: granted, release: "R"}
		q, a := acquisition(t, one, &server{}, &server{})
		o, _ := ask(q, a)
		if o.Err == nil || !strings.HasPrefix(o.Err.Error(), "1 of 3 servers answered, 2 are needed") || !errors.Is(o.Err, io.EOF) {
			t.Errorf("%q, %v", o.Reply, o.Err)
		}
		synctest.Wait()
		if got := one.got(); got != strings.TrimSpace(strings.Repeat("lock release ", wire.Tries)) {
			t.Errorf("of the server that answered: %s", got)
		}
	})
}

func TestALostRoundSaysWhy(t *testing.T) {
	held := func(by string) vote {
		return vote{asked: true, Answer: protocol.Answer{Status: protocol.Held, Holder: by, Token: "7", About: "me"}}
	}
	of := func(s protocol.Status) vote { return vote{asked: true, Answer: protocol.Answer{Status: s}} }
	cut := errors.New("connection cut")
	broken := vote{asked: true, Answer: protocol.Answer{Status: failed}, err: cut}
	m := &member{Session: fake.Session(t, fake.Client(t, new(server).answer))}
	for _, c := range []struct {
		votes []vote
		reply string
		err   error
		split bool // nobody has won
	}{
		{votes: []vote{held("a"), held("a"), of(protocol.Granted)}, reply: "H 0 0 a 7 me"},
		{votes: []vote{held("a"), held("b"), held("b")}, reply: "H 0 0 b 7 me"},
		{votes: []vote{held("a"), of(protocol.Granted), of(protocol.Granted)}, reply: "H 0 0 a 7 me", split: true},
		{votes: []vote{held("a"), of(protocol.Expired), of(protocol.Expired)}, reply: "V 0"},
		{votes: []vote{of(protocol.Granted), of(protocol.Granted), broken}, err: errNotAccepted},
		{votes: []vote{held("a"), broken, broken}, err: cut},
		{votes: []vote{held("a"), {asked: true}, broken}, err: cut},
		{votes: []vote{held("a"), {asked: true}, {}}, err: errLate},
		{votes: []vote{held("a"), {}, {}}, err: errSlow},
		{votes: []vote{of(protocol.Stale), of(protocol.Stale), {}}, err: protocol.ErrOver},
	} {
		b := &round{q: &Quorum{members: []*member{m, m, m}, need: 2}, votes: c.votes}
		if o := b.lost(); o.Reply != c.reply || !errors.Is(o.Err, c.err) || b.split != c.split {
			t.Errorf("want %q, %v: %q, %v, split %v", c.reply, c.err, o.Reply, o.Err, b.split)
		}
	}
}

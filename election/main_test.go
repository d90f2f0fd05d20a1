package election_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

const lockKey = "lockline:f:{x}"

var bg = context.Background()

func TestMain(m *testing.M) { testlock.Main(m, leaderProcess) }

// A term is the result of one Campaign. who is the number of the candidate.
type term struct {
	who int
	ctx context.Context
	*election.Leadership
	err error
}

// lead campaigns, and fails the test if Campaign returns an error.
func lead(t testing.TB, e *election.Election, value string) (context.Context, *election.Leadership) {
	t.Helper()
	ctx, l, err := e.Campaign(bg, value)
	testlock.Must(t, err)
	keep(t, l)
	return ctx, l
}

// keep keeps a reference to l until the test ends. In fake time, the library must not find a forgotten
// leadership (see testlock.Keep).
func keep(t testing.TB, l *election.Leadership) { t.Cleanup(func() { runtime.KeepAlive(l) }) }

// direct returns a client with another network, which faults of w.Net do not affect.
func direct(t testing.TB, w *testlock.Wire) *redis.Client {
	return faultproxy.InMemory(t, w.Dial).Client(t)
}

// newElection returns the election "x" in a new session.
func newElection(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *election.Election {
	t.Helper()
	return election.New(testlock.NewSession(t, rdb, options...), "x")
}

// A line has candidates that wait in the order in which they joined.
type line struct {
	t   testing.TB
	got chan term
}

func newLine(t testing.TB) *line { return &line{t, make(chan term, 100)} }

// join starts a candidate, and returns when it leads or waits.
func (l *line) join(e *election.Election, who int, value string) {
	l.t.Helper()
	before := candidates(l.t, e)
	go func() {
		led, lead, err := e.Campaign(bg, value)
		l.got <- term{who, led, lead, err}
	}()
	testlock.Eventually(l.t, "it waits", func() bool { return candidates(l.t, e) > before })
}

// next waits for the next leader, and returns its term.
func (l *line) next() term {
	l.t.Helper()
	n := testlock.Receive(l.t, "elected", l.got)
	testlock.Must(l.t, n.err)
	keep(l.t, n.Leadership)
	return n
}

// candidates returns the number of candidates, including the leader.
func candidates(t testing.TB, e *election.Election) int {
	t.Helper()
	st := testlock.Inspect(t, e)
	return len(st.Holders) + len(st.Queue)
}

func resign(t testing.TB, l *election.Leadership) {
	t.Helper()
	testlock.Must(t, l.Resign(bg))
}

// wantLeader fails the test unless Leader returns this token and value. Token 0 means that there is no
// leader.
func wantLeader(t testing.TB, e *election.Election, token int64, value string) {
	t.Helper()
	got, ok, err := e.Leader(bg)
	testlock.Must(t, err)
	if ok != (token != 0) || got.Token != token || got.Value != value {
		t.Errorf("the leader is %+v, %v; want token %d, %q", got, ok, token, value)
	}
}

// A watch is an observer. Its channel receives the values and errors of Observe.
type watch struct {
	t    testing.TB
	seen chan sight
}

type sight struct {
	leader election.Leader
	err    error
}

// observe starts an observer, which is stopped when the test ends.
func observe(t testing.TB, e *election.Election) *watch {
	w := &watch{t, make(chan sight, 1000)}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range e.Observe(ctx) {
			w.seen <- sight{l, err}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// sees waits for the next leader that Observe yields.
func (w *watch) sees() election.Leader {
	w.t.Helper()
	s := testlock.Receive(w.t, "the observer sees something", w.seen)
	testlock.Must(w.t, s.err)
	return s.leader
}

// seesAtLast waits until Observe yields this token and value. It fails the test if a higher token comes
// before.
func (w *watch) seesAtLast(token int64, value string) {
	w.t.Helper()
	for {
		l := w.sees()
		if l.Token > token && token != 0 {
			w.t.Fatalf("%+v comes before token %d", l, token)
		}
		if l.Token == token && l.Value == value {
			return
		}
	}
}

// kind returns the name of the script of a request.
func kind(r *faultproxy.Request) string { return testlock.Script(r.Script()) }

// on calls do for each request through w.Net that runs the script what, and applies the action that do
// returns.
func on(t testing.TB, w *testlock.Wire, what string, do func() faultproxy.Action) {
	w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(r) == what {
			return do()
		}
		return faultproxy.Pass
	})
}

// requests returns the requests of this kind that the proxy has seen.
func requests(
	p *faultproxy.Proxy, kind func(r *faultproxy.Request) string, name string,
) (all []faultproxy.Request) {
	for _, r := range p.Requests() {
		if kind(&r) == name {
			all = append(all, r)
		}
	}
	return all
}

// leaderProcess is the main function of a process that leads until its leadership ends, and prints a line at
// the beginning and at the end. args has the address of the server and the prefix.
func leaderProcess(args string) {
	addr, prefix, _ := strings.Cut(args, " ")
	s, err := rlock.NewSession(redis.NewClient(&redis.Options{Addr: addr}), rlock.WithPrefix(prefix),
		rlock.WithWatchdogTimeout(5*time.Second), rlock.WithLogger(testlock.Quiet))
	if err != nil {
		panic(err)
	}
	ctx, l, err := election.New(s, "x").Campaign(bg, "child")
	fmt.Println("leads", l.Token(), err)
	<-ctx.Done()
	fmt.Println("ended", l.Err())
}

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

// term is one leadership, as its candidate got it.
type term struct {
	who int
	ctx context.Context
	*election.Leadership
	err error
}

// lead campaigns and must win.
func lead(t testing.TB, e *election.Election, value string) (context.Context, *election.Leadership) {
	t.Helper()
	ctx, l, err := e.Campaign(bg, value)
	testlock.Must(t, err)
	keep(t, l)
	return ctx, l
}

// keep has a leadership live until the test ends: in fake time the library must find no forgotten one
// (testlock.Keep).
func keep(t testing.TB, l *election.Leadership) { t.Cleanup(func() { runtime.KeepAlive(l) }) }

// direct is a client that no fault of w.Net concerns.
func direct(t testing.TB, w *testlock.Wire) *redis.Client {
	return faultproxy.InMemory(t, w.Dial).Client(t)
}

// newElection is the election x in a session of its own.
func newElection(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *election.Election {
	t.Helper()
	return election.New(testlock.NewSession(t, rdb, options...), "x")
}

// line is candidates, each known to wait behind the one before it.
type line struct {
	t   testing.TB
	got chan term
}

func newLine(t testing.TB) *line { return &line{t, make(chan term, 100)} }

// join starts a candidate and returns once it waits.
func (l *line) join(e *election.Election, who int, value string) {
	l.t.Helper()
	before := candidates(l.t, e)
	go func() {
		led, lead, err := e.Campaign(bg, value)
		l.got <- term{who, led, lead, err}
	}()
	testlock.Eventually(l.t, "it waits", func() bool { return candidates(l.t, e) > before })
}

// next is the next leader.
func (l *line) next() term {
	l.t.Helper()
	n := testlock.Receive(l.t, "elected", l.got)
	testlock.Must(l.t, n.err)
	keep(l.t, n.Leadership)
	return n
}

// candidates are those that campaign, and the leader.
func candidates(t testing.TB, e *election.Election) int {
	t.Helper()
	st := testlock.Inspect(t, e)
	return len(st.Holders) + len(st.Queue)
}

func resign(t testing.TB, l *election.Leadership) {
	t.Helper()
	testlock.Must(t, l.Resign(bg))
}

// wantLeader checks what Leader says: a value, or "" for none.
func wantLeader(t testing.TB, e *election.Election, token int64, value string) {
	t.Helper()
	got, ok, err := e.Leader(bg)
	testlock.Must(t, err)
	if ok != (token != 0) || got.Token != token || got.Value != value {
		t.Errorf("the leader is %+v, %v; want token %d, %q", got, ok, token, value)
	}
}

// watch is an observer whose yields can be awaited.
type watch struct {
	t    testing.TB
	seen chan sight
}

type sight struct {
	leader election.Leader
	err    error
}

// observe starts an observer, which ends with the test.
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

// sees waits for the next change.
func (w *watch) sees() election.Leader {
	w.t.Helper()
	s := testlock.Receive(w.t, "the observer sees something", w.seen)
	testlock.Must(w.t, s.err)
	return s.leader
}

// seesAtLast waits for one state, and checks that no token before it is higher.
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

// kind names the script of a request.
func kind(r *faultproxy.Request) string { return testlock.Script(r.Script()) }

// on has do decide on each request through w.Net that runs a script of this kind.
func on(t testing.TB, w *testlock.Wire, what string, do func() faultproxy.Action) {
	w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(r) == what {
			return do()
		}
		return faultproxy.Pass
	})
}

// requests are those of a kind that the proxy has seen.
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

// leaderProcess is a process that leads until that ends, and says so. It is told the server's address and the
// prefix of keys.
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

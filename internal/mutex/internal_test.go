package mutex

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wakeup"
)

var kind = NewFair("f")

// What follows serves the tests of what is not exported. They run in fake time.

// request is one that the server got.
type request struct {
	kind  string // ask or release
	at    time.Time
	owner string // the attempt
	size  int    // how many wait with it
}

// server answers requests for the lock as a test says, and releases everything.
type server struct {
	answers chan string // to those that ask, one after the other; the others are answered when the test ends

	mu       sync.Mutex // guards what follows
	requests []request
}

func (s *server) answer(c fake.Call) (string, error) {
	r := request{kind: "release", at: time.Now(), owner: c.Argv[0].(string)}
	if c.Is(kind.Acquire) {
		r.kind, r.size = "ask", c.Argv[1].(int)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if r.kind == "ask" {
		return <-s.answers, nil
	}
	return "R", nil
}

// got are the requests since the last call, once everything is at rest.
func (s *server) got() []request {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.requests
	s.requests = nil
	return got
}

// kinds are those of requests, in their order.
func kinds(all []request) string {
	var words []string
	for _, r := range all {
		words = append(words, r.kind)
	}
	return strings.Join(words, " ")
}

// newQueue is a lock on the server, which is known until the test ends.
func newQueue(t *testing.T, s *server) (*Mutex, *Lock) {
	t.Helper()
	s.answers = make(chan string, 10)
	m := New(fake.Session(t, fake.Client(t, s.answer)), kind, "x", Config{})
	l, err := m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Leave)
	t.Cleanup(func() { close(s.answers) })
	return &m, l
}

// newWaiter is a goroutine's, in no list yet.
func newWaiter(q *Lock, cfg Config) *Waiter {
	w := handover.NewWaiter[*Tenure]()
	w.Fixed = cfg.Lease != 0
	w.For = &Acquisition{Bounds: wakeup.Bounds{Until: context.Background()}, Ctx: context.Background(), Lock: q, Config: cfg}
	return w
}

// in are the waiters in a list.
func in(l *List) (all []*Waiter) {
	for w := l.First(); w != nil; w = w.Next() {
		all = append(all, w)
	}
	return all
}

// got is what Lock has returned.
type got struct {
	ctx  context.Context
	hold *Hold
	err  error
}

// lock calls Lock in a goroutine, and returns when that is at rest. The hold is kept from being collected,
// which would unlock it from outside of the fake time.
func lock(t *testing.T, m *Mutex, ctx context.Context) <-chan got {
	c := make(chan got, 1)
	go func() {
		ctx, hold, err := m.Acquire(ctx, Config{}, false)
		t.Cleanup(func() { runtime.KeepAlive(hold) })
		c <- got{ctx, hold, err}
	}()
	synctest.Wait()
	return c
}

// granted is the hold that c has by now.
func granted(t *testing.T, c <-chan got) *Hold {
	t.Helper()
	synctest.Wait()
	select {
	case g := <-c:
		if g.err != nil {
			t.Fatal(g.err)
		}
		return g.hold
	default:
		t.Fatal("it still waits")
	}
	panic("unreachable")
}

func unlock(t *testing.T, hold *Hold) {
	t.Helper()
	if err := hold.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// held is the answer that another session holds the lock, with this token.
func held(token int) string { return fmt.Sprintf("Q 1000000 60000 other:1 %d\nme", token) }

// attemptOf is the only one that waits.
func attemptOf(t *testing.T, q *Lock) *attempt {
	t.Helper()
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if len(q.standing) != 1 {
		t.Fatalf("%d attempts wait", len(q.standing))
	}
	return q.standing[0]
}

// now is the attempt's state.
func (a *attempt) now() attemptState {
	a.l.Mu.Lock()
	defer a.l.Mu.Unlock()
	return a.state
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/testing/fake"
)

var kind = NewLock("f", true)

// The helpers in this file are for tests of unexported code, which run in fake time.

// A request is a request that the server has received.
type request struct {
	kind  string // ask or release
	at    time.Time
	owner string // owner field of the attempt
	size  int    // number of goroutines that wait with the attempt
}

// server answers requests for the lock with the replies that a test sends on answers. It accepts each
// release.
type server struct {
	answers chan string // replies to requests for the lock, in order; closed when the test ends
	served  string      // grants in the reply to a release

	mu       sync.Mutex // guards the following
	requests []request
}

func (s *server) answer(c fake.Call) (string, error) {
	r := request{kind: "release", at: time.Now(), owner: c.Argv[0].(string)}
	if c.Is(acquireScript) {
		r.kind, r.size = "ask", c.Argv[1].(int)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if r.kind == "ask" {
		return <-s.answers, nil
	}
	return "R" + s.served, nil
}

// got waits until all goroutines of the bubble are blocked, and returns the requests since its last call.
func (s *server) got() []request {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.requests
	s.requests = nil
	return got
}

// kinds returns the kinds of the requests, in their order.
func kinds(all []request) string {
	var words []string
	for _, r := range all {
		words = append(words, r.kind)
	}
	return strings.Join(words, " ")
}

// newLock returns a lock on the server, and the lock's state, which is kept until the test ends.
func newLock(t *testing.T, s *server) (*Lock, *lockState) {
	t.Helper()
	s.answers = make(chan string, 10)
	m := New(fake.Session(t, fake.Client(t, s.answer)), kind, "x", Config{})
	p := m.all.use(m.kind, m.keys)
	t.Cleanup(func() { p.registry.change(p, -1) })
	t.Cleanup(func() { close(s.answers) })
	return &m, p
}

// got has the results of Lock.
type got struct {
	ctx  context.Context
	hold *handle.Hold
	err  error
}

// lock calls Lock in a goroutine, and returns when that goroutine is blocked or has ended. lock keeps the
// hold reachable, because the garbage collector would unlock it from outside the bubble.
func lock(t *testing.T, m *Lock, ctx context.Context) <-chan got {
	c := make(chan got, 1)
	go func() {
		ctx, hold, err := m.Acquire(ctx, Exclusive, Config{}, false)
		t.Cleanup(func() { runtime.KeepAlive(hold) })
		c <- got{ctx, hold, err}
	}()
	synctest.Wait()
	return c
}

// granted returns the hold that c has received. It fails the test if c has received none.
func granted(t *testing.T, c <-chan got) *handle.Hold {
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

func unlock(t *testing.T, hold *handle.Hold) {
	t.Helper()
	if err := hold.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// held returns the reply that another session holds the lock with this token.
func held(token int) string { return fmt.Sprintf("Q 1000000 60000 other:1 %d\nme", token) }

// attemptOf returns the only attempt of the lane with this index.
func attemptOf(t *testing.T, p *lockState, lane int) *attempt {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lanes) <= lane || len(p.lanes[lane].attempts) != 1 {
		t.Fatalf("%d lanes wait", len(p.lanes))
	}
	return p.lanes[lane].attempts[0]
}

// now returns the state of the attempt.
func (a *attempt) now() attemptState {
	a.lane.l.mu.Lock()
	defer a.lane.l.mu.Unlock()
	return a.state
}

// message delivers a message that grants the lock to an attempt.
func (p *lockState) message(a *attempt, token, at int64, lease time.Duration) {
	p.registry.inbox.receive(fmt.Sprintf("%s %d %d %d %s", a.owner, token, at, lease.Milliseconds(), a.nonce))
}

// The goroutine that should get the grant has left in that instant, so no Unlock will release the grant.
func TestAGrantThatIsLostBeforeItsGoroutineHasItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		s.answers <- "G 1000000 1"
		hold := granted(t, lock(t, m, context.Background()))
		p.mu.Lock()
		g := p.grants[0]
		g.numEntries++ // as serve does
		g.staleUntil = 7
		p.mu.Unlock()
		s.got()
		fx := p.begin()
		g.end(handle.Lost, failure.ErrExpired, &fx)
		fx.commit()
		fx = p.begin()
		g.dropEntry(&fx) // as giveUp does
		fx.commit()
		if all := s.got(); kinds(all) != "release" || all[0].owner != g.owner {
			t.Errorf("it was told of %+v", all)
		}
		if err := hold.Unlock(context.Background()); !errors.Is(err, failure.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestATryThatIsRefusedHereLeavesNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		s.answers <- "G 1000000 1"
		hold := granted(t, lock(t, m, context.Background()))
		for i := range 5 {
			cfg := Config{Lease: time.Duration(i+1) * time.Minute}
			_, _, err := m.Acquire(context.Background(), Exclusive, cfg, true)
			if !errors.Is(err, failure.ErrLocked) {
				t.Errorf("a try: %v", err)
			}
		}
		p.mu.Lock()
		if n := len(p.lanes); n != 1 {
			t.Errorf("%d lanes", n)
		}
		p.mu.Unlock()
		unlock(t, hold)
	})
}

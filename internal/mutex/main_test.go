package mutex

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	bg        = context.Background()
	reentrant = &Kind{Letter: protocol.Reentrant, Scripts: queueScripts, Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
		return protocol.NewKeys(s.Prefix, protocol.Reentrant, name)
	}}
)

// store is a server that grants, keeps and releases whatever it is asked, and a lock on it.
type store struct {
	s       *session.Session
	m       Mutex
	OnRenew func() error // nil: it works

	mu       sync.Mutex // guards what follows
	granted  int64      // blocks of tokens; there are gaps between them
	requests []string
}

func newStore(t *testing.T) *store {
	st := &store{}
	st.s = fake.Session(t, fake.Client(t, st.answer))
	st.m = New(st.s, reentrant, "x", Config{})
	return st
}

func (st *store) answer(c fake.Call) (string, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	note := func(format string, args ...any) { st.requests = append(st.requests, fmt.Sprintf(format, args...)) }
	switch {
	case c.Is(reentrant.Acquire):
		note("ask")
		st.granted++
		return fmt.Sprintf("G 1 %d", (st.granted-1)*2*protocol.Block+1), nil
	case c.Is(reentrant.Keep):
		if st.OnRenew != nil {
			return "", st.OnRenew()
		}
		note("keep %v", c.Argv[3])
		return "K", nil
	case c.Argv[1] == "":
		note("release any")
	case c.Argv[5] == "0" || c.Argv[5] == c.Argv[1]:
		note("release %v", c.Argv[1])
	default:
		note("release %v..%v", c.Argv[1], c.Argv[5])
	}
	return "R", nil
}

// Requests are those since the last call: "ask", "keep COUNT", "release TOKEN" ("TOKEN..LAST" if more of the
// block was used, "any" for whatever the attempt was granted).
func (st *store) Requests() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	requests := st.requests
	st.requests = nil
	return requests
}

// Want fails the test unless these were the requests since the last call of Requests or Want.
func (st *store) Want(t testing.TB, when string, want ...string) {
	t.Helper()
	if got := st.Requests(); !slices.Equal(got, want) {
		t.Errorf("%s: the requests are %q, want %q", when, got, want)
	}
}

// forgotten reports whether the lock is not known any more.
func (st *store) forgotten() bool {
	st.m.table.mu.Lock()
	defer st.m.table.mu.Unlock()
	return len(st.m.table.locks) == 0
}

// acquire locks. The hold is kept from being collected: that would unlock it from outside of a test's fake
// time.
func (st *store) acquire(t *testing.T, ctx context.Context, cfg Config) got {
	ctx, hold, err := st.m.Acquire(ctx, cfg, false)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return got{ctx, hold, err}
}

// lock locks, which must work.
func (st *store) lock(t *testing.T, ctx context.Context, cfg Config) (context.Context, *Hold) {
	t.Helper()
	g := st.acquire(t, ctx, cfg)
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.ctx, g.hold
}

// wait locks in a goroutine, and returns when that waits. In fake time.
func (st *store) wait(t *testing.T, ctx context.Context, cfg Config) <-chan got {
	c := make(chan got, 1)
	go func() { c <- st.acquire(t, ctx, cfg) }()
	synctest.Wait()
	return c
}

// got is what Lock has returned.
type got struct {
	ctx  context.Context
	hold *Hold
	err  error
}

func unlock(t *testing.T, hold *Hold) {
	t.Helper()
	if err := hold.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
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

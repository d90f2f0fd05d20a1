package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/watchdog"
)

// Store is a mutex.Store that grants, keeps and releases whatever it is asked, unless the test says otherwise. A test
// sets the functions before it uses the Store. They may block.
type Store struct {
	mutex.Store // nil: of what no test needs

	OnAsk     func(a *mutex.Acquisition) wire.Outcome
	OnUpdate  func(t *mutex.Tenure) wire.Outcome
	OnRelease func(r *protocol.Release) wire.Outcome
	OnRead    func(r *protocol.Same) wire.Outcome
	OnRenew   func() error
	OnListen  func(sharded bool)

	mu       sync.Mutex // guards what follows; a leaf
	granted  int64      // blocks of tokens; there are gaps between them
	requests []string
}

// Session returns a session that the Store renews the leases of. It ends with the test.
func (st *Store) Session(t testing.TB) *session.Session {
	s := session.NewVirtual(Config(), (*renewer)(st), func() {})
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s
}

// Kind is a kind of locks whose grants live in the Store. A name is good if it is one of a reentrant lock.
func (st *Store) Kind(newLock func(*session.Session) (*mutex.Lock, mutex.Waiting, error)) *mutex.Kind {
	return &mutex.Kind{
		Letter: protocol.Reentrant, Lock: wire.NewScript("lock"), Release: wire.NewScript("release"), Force: wire.NewScript("force"), Inspect: wire.NewScript("inspect"),
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			return protocol.NewKeys(s.Prefix, protocol.Reentrant, name)
		},
		Store:   func(*session.Session) mutex.Store { return st },
		NewLock: newLock,
	}
}

// Requests are those since the last call: "ask", "keep COUNT", "release TOKEN" ("TOKEN..LAST" if more of the block was
// used, "any" for whatever the attempt was granted), "read".
func (st *Store) Requests() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	requests := st.requests
	st.requests = nil
	return requests
}

// Want fails the test unless these were the requests since the last call of Requests or Want.
func (st *Store) Want(t testing.TB, when string, want ...string) {
	t.Helper()
	if got := st.Requests(); !slices.Equal(got, want) {
		t.Errorf("%s: the requests are %q, want %q", when, got, want)
	}
}

func (st *Store) note(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.requests = append(st.requests, fmt.Sprintf(format, args...))
}

// Granted is an outcome that grants a block of tokens, the first of which it names.
func (st *Store) Granted() wire.Outcome {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.granted++
	return wire.Outcome{Sent: time.Now(), Reply: fmt.Sprintf("G 1 %d", (st.granted-1)*2*protocol.Block+1)}
}

func (st *Store) Ask(a *mutex.Acquisition, _ int, _ *atomic.Bool) wire.Outcome {
	st.note("ask")
	if st.OnAsk != nil {
		return st.OnAsk(a)
	}
	return st.Granted()
}

func (st *Store) Update(_ context.Context, t *mutex.Tenure, _ time.Duration, _ int, _ *atomic.Bool) wire.Outcome {
	t.Lock.Mu.Lock()
	count := t.Entries
	t.Lock.Mu.Unlock()
	st.note("keep %d", count)
	if st.OnUpdate != nil {
		return st.OnUpdate(t)
	}
	return wire.Outcome{Sent: time.Now(), Reply: "K"}
}

func (st *Store) Silent(context.Context, *protocol.Keys) bool { return true }

func (st *Store) Release(_ context.Context, r *protocol.Release, _ int) wire.Outcome {
	switch {
	case r.Token == "":
		st.note("release any")
	case r.Used == nil || r.Used == r.Token:
		st.note("release %v", r.Token)
	default:
		st.note("release %v..%v", r.Token, r.Used)
	}
	if st.OnRelease != nil {
		return st.OnRelease(r)
	}
	return wire.Outcome{Sent: time.Now(), Reply: "R 0"}
}

func (st *Store) ReleaseAll(ended []*mutex.Tenure) error {
	for _, t := range ended {
		r := t.ReleaseRequest()
		st.Release(context.Background(), &r, 1)
	}
	return nil
}

// Listen hears nothing.
func (st *Store) Listen(channel string, sharded bool) *wakeup.Listener {
	if st.OnListen != nil {
		st.OnListen(sharded)
	}
	return wakeup.Listen(channel, deaf)
}

// deaf is closed, so it connects to nothing.
var deaf = func() *pubsub.Hub {
	h := pubsub.NewHub(nil, pubsub.Options{})
	h.Close()
	return h
}()

func (st *Store) Read(_ context.Context, r *protocol.Same, _ int) wire.Outcome {
	st.note("read")
	return st.OnRead(r)
}

// renewer renews all leases, or none.
type renewer Store

func (r *renewer) Server(session.Lessee) any { return nil }

func (r *renewer) Renew(_ context.Context, _ any, leases []*watchdog.Lease) []watchdog.Result {
	results := make([]watchdog.Result, len(leases))
	for i := range results {
		results[i].Deadline = time.Now().Add(protocol.Valid(Config().Lease))
		if r.OnRenew != nil {
			results[i].Err = r.OnRenew()
		}
	}
	return results
}

package rlock_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) {
	if os.Getenv(contenderEnv) != "" {
		contend()
		return
	}
	testredis.ManyAtOnce()
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// quiet is a logger for tests that lose locks on purpose.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var bg = context.Background()

// everyServer runs a test on the embedded server and on a real one.
func everyServer(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("embedded", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb)
	})
	t.Run("real", func(t *testing.T) { test(t, testredis.Start(t).Client(t)) })
}

// maker makes a Mutex of some kind.
type maker func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex

var kinds = map[string]maker{"reentrant": rlock.New, "fair": fairlock.New, "redlock": redLock}

// redLock is a RedLock of one server.
func redLock(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	q, err := multilock.NewQuorum([]*rlock.Session{s})
	if err != nil {
		return multilock.NewRedLock(name, s) // tells why
	}
	return q.New(name, options...)
}

// everyKind runs a test on both servers for each kind of lock: they promise the same.
func everyKind(t *testing.T, test func(t *testing.T, rdb *redis.Client, newMutex maker)) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			everyServer(t, func(t *testing.T, rdb *redis.Client) { test(t, rdb, newMutex) })
		})
	}
}

func newSession(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *rlock.Session {
	t.Helper()
	s, err := rlock.NewSession(rdb, append([]rlock.SessionOption{rlock.WithLogger(quiet)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// identity is the id by which a session holds locks of a kind: its own, or that of its quorum.
func identity(t testing.TB, s *rlock.Session, newMutex maker) string {
	t.Helper()
	m := newMutex(s, "identity")
	_, hold := lock(t, m, bg)
	id := inspect(t, m).Session
	unlock(t, hold)
	return id
}

func lock(t testing.TB, m *rlock.Mutex, ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := m.Lock(ctx, options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	if _, fake := bubbles.Load(t); fake { // a forgotten Hold is unlocked from outside of the bubble, which ends the program
		t.Cleanup(func() { runtime.KeepAlive(hold) })
	}
	return ctx, hold
}

// bubbles are the tests that run in fake time.
var bubbles sync.Map

func unlock(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	if err := hold.Unlock(bg); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func inspect(t testing.TB, m *rlock.Mutex) rlock.State {
	t.Helper()
	st, err := m.Inspect(bg)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return st
}

// patience is for what must happen, however slow the machine.
const patience = 30 * time.Second

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func within(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("still not: %s", what)
	}
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(bg, patience)
	t.Cleanup(cancel)
	return ctx
}

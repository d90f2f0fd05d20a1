// Package testlock has helpers for the tests of locks, such as sessions, locks that a test must get, waits
// that must end, and servers in fake time. Real servers are in package testredis.
//
// Most helpers can stop the test, as t.Fatal does, so only the goroutine of the test may call them. A helper
// that only fails the test, as t.Error does, may be called by any goroutine.
package testlock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Patience is the longest time for which a test waits for an event that must come. It is long enough for a
// slow machine.
const Patience = 30 * time.Second

// Quiet is the logger of sessions that NewSession opens. It formats log lines, but drops them.
var Quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var bg = context.Background()

// NewSession opens a session that logs nothing, unless the options contain a logger. An error stops the test.
// The session is closed when the test ends.
func NewSession(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *rlock.Session {
	t.Helper()
	before := []rlock.SessionOption{rlock.WithLogger(Quiet)}
	if prefix := prefixOf(rdb); prefix != "" {
		before = append(before, rlock.WithPrefix(prefix))
	}
	s, err := rlock.NewSession(rdb, append(before, options...)...)
	Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Batching lets requests of s share pipelines if more than n requests are in flight. If n is negative,
// requests never share pipelines. Call Batching before s sends its first request. Batching returns s.
func Batching(s *rlock.Session, n int) *rlock.Session {
	inner.Session(s).Link.Batching = n
	return s
}

// Client returns a client of the server at addr. The client is closed when the test ends.
func Client(t testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// User creates an ACL user on server, with these rights and no others. It returns a client of this user. An
// error stops the test. The client is closed when the test ends.
func User(t testing.TB, server *testredis.Server, name string, rights ...any) *redis.Client {
	t.Helper()
	rules := append([]any{"ACL", "SETUSER", name, "reset", "resetchannels", "on", ">PASSWORD"}, rights...)
	Must(t, server.Client(t).Do(bg, rules...).Err())
	return server.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "PASSWORD" })
}

// Impatient changes the options of a client, so that the client waits only 200 ms for each connection and for
// each reply.
func Impatient(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout = 200*time.Millisecond, 200*time.Millisecond
}

// Bounded returns a context that ends after Patience, or with the test.
func Bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(bg, Patience)
	t.Cleanup(cancel)
	return ctx
}

// Lock calls l.Lock and returns its context and its Hold. An error stops the test. In fake time the Hold
// lives until the test ends, even if the caller does not keep it.
func Lock(
	t testing.TB, l rlock.Locker, ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.Lock(ctx, options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	Keep(t, hold)
	return ctx, hold
}

// TryLock does the same as Lock, but calls l.TryLock.
func TryLock(
	t testing.TB, l rlock.Locker, ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.TryLock(ctx, options...)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	Keep(t, hold)
	return ctx, hold
}

// Take calls Lock and returns only the Hold. It waits for Patience at most.
func Take(t testing.TB, l rlock.Locker, options ...rlock.Option) *rlock.Hold {
	t.Helper()
	_, hold := Lock(t, l, Bounded(t), options...)
	return hold
}

// Unlock unlocks holds. An error stops the test.
func Unlock(t testing.TB, holds ...*rlock.Hold) {
	t.Helper()
	for _, hold := range holds {
		if err := hold.Unlock(bg); err != nil {
			t.Fatalf("Unlock: %v", err)
		}
	}
}

// Works stops the test unless l can be taken within Patience, and unlocked.
func Works(t testing.TB, l rlock.Locker) {
	t.Helper()
	Unlock(t, Take(t, l))
}

// Warm takes l, takes it again as a nested hold, unlocks both holds and returns l. After that, the server
// knows the scripts, and the session knows the time of Redis, so each call is one request. An error stops the
// test.
func Warm[L rlock.Locker](t testing.TB, l L) L {
	t.Helper()
	ctx, hold := Lock(t, l, bg)
	_, nested := Lock(t, l, ctx)
	Unlock(t, nested)
	Unlock(t, hold)
	return l
}

// Inspect returns the state of a lock or semaphore. An error stops the test.
func Inspect[S any](t testing.TB, l interface {
	Inspect(context.Context) (S, error)
}) S {
	t.Helper()
	st, err := l.Inspect(bg)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return st
}

// ForceUnlock takes m from its holder. It stops the test if there is an error, or if m is not held.
func ForceUnlock(t testing.TB, m interface {
	ForceUnlock(context.Context) (bool, error)
}) {
	t.Helper()
	if held, err := m.ForceUnlock(bg); err != nil || !held {
		t.Fatalf("ForceUnlock: held %v, %v", held, err)
	}
}

// Cycle locks l and unlocks it at once. It may run in any goroutine.
func Cycle(ctx context.Context, l rlock.Locker, options ...rlock.Option) error {
	_, hold, err := l.Lock(ctx, options...)
	if err != nil {
		return err
	}
	return hold.Unlock(bg)
}

// A Grant has the results of a call of Lock.
type Grant struct {
	Ctx  context.Context
	Hold *rlock.Hold
	Err  error
}

// Go calls l.Lock in a new goroutine, which sends the results to the channel.
func Go(ctx context.Context, l rlock.Locker, options ...rlock.Option) <-chan Grant {
	got := make(chan Grant, 1)
	go func() {
		ctx, hold, err := l.Lock(ctx, options...)
		got <- Grant{ctx, hold, err}
	}()
	return got
}

// Granted waits for the results that Go sends, for Patience at most, and returns the Hold. An error stops the
// test.
func Granted(t testing.TB, got <-chan Grant) *rlock.Hold {
	t.Helper()
	g := Receive(t, "the end of Lock", got)
	if g.Err != nil {
		t.Fatalf("Lock: %v", g.Err)
	}
	Keep(t, g.Hold)
	return g.Hold
}

// Must stops the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// OnePrefix fails the test if err contains the library's prefix more often than it has lines. `what` names
// the call that has returned err.
func OnePrefix(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil && strings.Count(err.Error(), "lockline: ") > 1+strings.Count(err.Error(), "\n") {
		t.Errorf("%s: several prefixes: %v", what, err)
	}
}

// WantError fails the test unless err matches want. It also calls OnePrefix. `what` names the call that has
// returned err.
func WantError(t testing.TB, what string, err, want error) {
	t.Helper()
	OnePrefix(t, what, err)
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// WantAfter fails the test unless the token of hold is higher than last.
func WantAfter(t testing.TB, hold *rlock.Hold, last int64) {
	t.Helper()
	if hold.Token() <= last {
		t.Errorf("token %d after %d", hold.Token(), last)
	}
}

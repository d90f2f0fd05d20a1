package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// locker is what locktest.Locker and rlock.Mutex have in common.
type locker interface {
	rlock.Locker
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error
}

// world has locks, and what a test does to them from outside.
type world interface {
	new(name string, options ...rlock.Option) locker
	// occupy has somebody else take a lock that is free.
	occupy(t testing.TB, name string) (free func())
	// lose takes a lock from its holder, who learns it.
	lose(t testing.TB, hold *rlock.Hold)
	// fail makes requests fail; "" ends it.
	fail(reply string)
	inspect(t testing.TB, name string) rlock.State
}

// settled is longer than any request or hand-over takes in fake time.
const settled = 50 * time.Millisecond

// fake is locktest.
type fake struct{ locktest.Space }

func (w *fake) new(name string, options ...rlock.Option) locker { return w.New(name, options...) }

func (w *fake) occupy(_ testing.TB, name string) func() { return w.Occupy(name) }

func (w *fake) lose(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	if !w.Lose(hold.Name()) {
		t.Error("nobody held it")
	}
}

func (w *fake) fail(reply string) {
	if reply == "" {
		w.Fail(nil)
	} else {
		w.Fail(errors.New(reply))
	}
}

func (w *fake) inspect(_ testing.TB, name string) rlock.State { return w.Inspect(name) }

// product is the library on an embedded server.
type product struct {
	server       *miniredis.Miniredis
	newMutex     func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex
	mine, theirs *rlock.Session
}

func newProduct(t testing.TB, newMutex func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex) *product {
	w := &product{server: miniredis.NewMiniRedis(), newMutex: newMutex}
	w.server.ClockTTL(true)
	t.Cleanup(w.server.Close)
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return w.server.Dial() },
		Addr:   "127.0.0.1:1", // never dialed
	})
	t.Cleanup(func() { _ = rdb.Close() })
	for _, s := range []**rlock.Session{&w.mine, &w.theirs} {
		var err error
		*s, err = rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
		must(t, err)
		t.Cleanup(func() { _ = (*s).Close() })
	}
	return w
}

func (w *product) new(name string, options ...rlock.Option) locker {
	return w.newMutex(w.mine, name, options...)
}

func (w *product) occupy(t testing.TB, name string) func() {
	t.Helper()
	_, hold := try(t, w.newMutex(w.theirs, name), bg)
	return func() { unlock(t, hold) }
}

func (w *product) lose(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	if was, err := w.newMutex(w.theirs, hold.Name()).ForceUnlock(bg); !was || err != nil {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	wants(t, "the next request", hold.Extend(bg, time.Second), rlock.ErrLost)
}

func (w *product) fail(reply string) { w.server.SetError(reply) }

func (w *product) inspect(t testing.TB, name string) rlock.State {
	t.Helper()
	state, err := w.newMutex(w.theirs, name).Inspect(bg)
	must(t, err)
	return state
}

var kinds = map[string]func(t testing.TB) world{
	"locktest":  func(testing.TB) world { return &fake{} },
	"reentrant": func(t testing.TB) world { return newProduct(t, rlock.New) },
	"fair":      func(t testing.TB) world { return newProduct(t, fairlock.New) },
}

// inFakeTime runs a test in a bubble of its own.
func inFakeTime(t *testing.T, kind string, test func(t *testing.T, w world)) {
	synctest.Test(t, func(t *testing.T) { test(t, kinds[kind](t)) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keep has the product not find a forgotten Hold: it would be unlocked from outside of the bubble.
func keep(t testing.TB, ctx context.Context, hold *rlock.Hold) (context.Context, *rlock.Hold) {
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return ctx, hold
}

func lock(t testing.TB, l rlock.Locker, ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.Lock(ctx, options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return keep(t, ctx, hold)
}

func try(t testing.TB, l rlock.Locker, ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.TryLock(ctx, options...)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return keep(t, ctx, hold)
}

func unlock(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	if err := hold.Unlock(bg); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// wants fails the test unless err matches.
func wants(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

// class is what callers tell errors apart by.
func class(err error) (c string) {
	for _, target := range []error{rlock.ErrLocked, rlock.ErrLost, rlock.ErrNotHeld, context.Canceled} {
		if errors.Is(err, target) {
			c += "/" + target.Error()
		}
	}
	if c == "" {
		return fmt.Sprint(err)
	}
	if locked := new(rlock.LockedError); errors.As(err, &locked) {
		c += fmt.Sprintf(" held by another: %v, by this session: %v", locked.Holder != "" && locked.Hint == "", locked.Hint != "")
	}
	return c
}

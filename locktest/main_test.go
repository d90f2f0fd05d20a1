package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
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
	server       *testlock.Wire
	newMutex     testlock.Maker
	mine, theirs *rlock.Session
}

func newProduct(t testing.TB, newMutex testlock.Maker) *product {
	server := testlock.NewWire(t)
	return &product{server, newMutex, testlock.NewSession(t, server.Client),
		testlock.NewSession(t, server.Client)}
}

func (w *product) new(name string, options ...rlock.Option) locker {
	return w.newMutex(w.mine, name, options...)
}

func (w *product) occupy(t testing.TB, name string) func() {
	t.Helper()
	_, hold := testlock.TryLock(t, w.newMutex(w.theirs, name), bg)
	return func() { testlock.Unlock(t, hold) }
}

func (w *product) lose(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	testlock.ForceUnlock(t, w.newMutex(w.theirs, hold.Name()))
	testlock.WantError(t, "the next request", hold.Extend(bg, time.Second), rlock.ErrLost)
}

func (w *product) fail(reply string) { w.server.SetError(reply) }

func (w *product) inspect(t testing.TB, name string) rlock.State {
	t.Helper()
	return testlock.Inspect(t, w.newMutex(w.theirs, name))
}

var kinds = map[string]func(t testing.TB) world{
	"locktest":  func(testing.TB) world { return &fake{} },
	"reentrant": func(t testing.TB) world { return newProduct(t, rlock.New) },
	"fair":      func(t testing.TB) world { return newProduct(t, fairlock.New) },
}

// inFakeTime runs a test in a bubble of its own.
func inFakeTime(t *testing.T, kind string, test func(t *testing.T, w world)) {
	testlock.InFakeTime(t, func(t *testing.T) { test(t, kinds[kind](t)) })
}

// everyKind runs a test on locktest and on the library.
func everyKind(t *testing.T, test func(t *testing.T, w world)) {
	t.Parallel()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) { inFakeTime(t, kind, test) })
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
		c += fmt.Sprintf(" held by another: %v, by this session: %v",
			locked.Holder != "" && locked.Hint == "", locked.Hint != "")
	}
	return c
}

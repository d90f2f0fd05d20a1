package broadcast

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// newMutex is a lock whose grants live in the store.
func newMutex(t *testing.T, st *fake.Store) *mutex.Mutex {
	m := mutex.New(st.Session(t), st.Kind(NewLock), "x", mutex.Config{})
	return &m
}

// enter returns what is known of the lock, which it is until the test ends.
func enter(t *testing.T, m *mutex.Mutex) *crowd {
	t.Helper()
	l, err := m.Enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Leave)
	return l.Waiting().(*crowd)
}

// acquire locks. The hold is kept from being collected: that would unlock it from outside of a test's fake time.
func acquire(t *testing.T, m *mutex.Mutex, ctx context.Context, try bool) (*mutex.Hold, error) {
	_, hold, err := m.Acquire(ctx, mutex.Config{}, try)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold, err
}

// take is acquire where that must work.
func take(t *testing.T, m *mutex.Mutex) *mutex.Hold {
	t.Helper()
	hold, err := acquire(t, m, bg, false)
	if err != nil {
		t.Error(err)
	}
	return hold
}

func unlock(t *testing.T, hold *mutex.Hold) {
	t.Helper()
	if err := hold.Unlock(bg); err != nil {
		t.Error(err)
	}
}

// is reports whether an error matches what is wanted: nil, another error, or a part of its text.
func is(err error, want any) bool {
	switch want := want.(type) {
	case error:
		return errors.Is(err, want)
	case string:
		return err != nil && strings.Contains(err.Error(), want)
	}
	return err == nil
}

package mutex_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// lock is one whose grants live in a fake store.
type lock struct {
	fake.Store
	s         *session.Session
	m         mutex.Mutex
	forgotten atomic.Int64 // how often it was
}

func newLock(t *testing.T) *lock {
	l := &lock{}
	l.s = l.Session(t)
	l.m = mutex.New(l.s, l.Kind(func(s *session.Session) (*mutex.Lock, mutex.Waiting, error) {
		in, w, err := broadcast.NewLock(s)
		return in, &watched{w, l}, err
	}), "x", mutex.Config{})
	return l
}

// watched counts how often the lock is forgotten.
type watched struct {
	mutex.Waiting
	l *lock
}

func (w *watched) Idle() {
	w.l.forgotten.Add(1)
	w.Waiting.Idle()
}

// got is what Lock has returned.
type got struct {
	ctx  context.Context
	hold *mutex.Hold
	err  error
}

// acquire locks. The hold is kept from being collected: that would unlock it from outside of a test's fake time.
func (l *lock) acquire(t *testing.T, ctx context.Context, cfg mutex.Config) got {
	ctx, hold, err := l.m.Acquire(ctx, cfg, false)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return got{ctx, hold, err}
}

// lock locks, which must work.
func (l *lock) lock(t *testing.T, ctx context.Context, cfg mutex.Config) (context.Context, *mutex.Hold) {
	t.Helper()
	g := l.acquire(t, ctx, cfg)
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.ctx, g.hold
}

// wait locks in a goroutine, and returns when that waits. In fake time.
func (l *lock) wait(t *testing.T, ctx context.Context, cfg mutex.Config) <-chan got {
	c := make(chan got, 1)
	go func() { c <- l.acquire(t, ctx, cfg) }()
	synctest.Wait()
	return c
}

// granted is the hold that a goroutine waits for, which it must have by now. In fake time.
func granted(t *testing.T, c <-chan got) *mutex.Hold {
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

func unlock(t *testing.T, hold *mutex.Hold) {
	t.Helper()
	if err := hold.Unlock(bg); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// said collects errors, and complains of a text with two prefixes.
type said struct {
	t  *testing.T
	mu sync.Mutex // guards n
	n  int
}

// that takes an error that must be there.
func (s *said) that(what string, err error) {
	s.t.Helper()
	if err == nil {
		s.t.Errorf("%s: no error", what)
		return
	}
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
	s.t.Logf("%s: %v", what, err)
	if n := strings.Count(err.Error(), "lockline: "); n > 1 {
		s.t.Errorf("%s: %d prefixes: %v", what, n, err)
	}
}

// Observe is told of losses.
func (s *said) Observe(_ context.Context, e rlock.Event) {
	if e.Err != nil {
		s.that(e.Kind.String(), e.Err)
	}
}

// lockers are locks of each kind, and MultiLocks.
func lockers() map[string]func(s *rlock.Session, name string) rlock.Locker {
	all := map[string]func(*rlock.Session, string) rlock.Locker{}
	for kind, newMutex := range testlock.Kinds {
		all[kind] = func(s *rlock.Session, name string) rlock.Locker { return newMutex(s, name) }
		all["multilock of "+kind] = func(s *rlock.Session, name string) rlock.Locker {
			return multilock.New(newMutex(s, name), newMutex(s, name+"2"))
		}
	}
	return all
}

func TestEachErrorHasOnePrefix(t *testing.T) {
	for kind, newLock := range lockers() {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				rdb := w.Client
				s := &said{t: t}
				session, other := testlock.NewSession(t, rdb, rlock.WithObserver(s)), testlock.NewSession(t, rdb)
				l, theirs := newLock(session, "x"), newLock(other, "x")
				take := func(ctx context.Context, l rlock.Locker, options ...rlock.Option) (context.Context, *rlock.Hold) {
					t.Helper()
					return testlock.Lock(t, l, ctx, options...)
				}
				fails := func(what string, ctx context.Context, l rlock.Locker, options ...rlock.Option) {
					_, _, err := l.Lock(ctx, options...)
					s.that(what+": Lock", err)
					_, _, err = l.TryLock(ctx, options...)
					s.that(what+": TryLock", err)
					if m, ok := l.(*rlock.Mutex); ok && len(options) == 0 {
						_, err = m.Inspect(ctx)
						s.that(what+": Inspect", err)
						_, err = m.ForceUnlock(ctx)
						s.that(what+": ForceUnlock", err)
					}
				}
				held, hold := take(bg, l)
				_, _, err := theirs.TryLock(bg)
				s.that("taken", err)
				_, _, err = theirs.Lock(bg, rlock.WaitAtMost(time.Millisecond))
				s.that("taken until the wait was over", err)
				_, _, err = l.Lock(bg, rlock.WaitAtMost(time.Millisecond))
				s.that("taken by itself", err)
				s.that("a short extension", hold.Extend(bg, 1))
				testlock.Unlock(t, hold)
				s.that("an Unlock too many", hold.Unlock(bg))
				s.that("unlocked", hold.Err())
				s.that("unlocked", hold.Extend(bg, time.Second))
				s.that("unlocked", context.Cause(held))
				fails("the context of an unlocked hold", held, l)
				fails("a lease", bg, l, rlock.WithLease(1))
				fails("a wait", bg, l, rlock.WaitAtMost(-1))

				held, hold = take(bg, l)
				testlock.Must(t, rdb.FlushAll(bg).Err())
				testlock.Eventually(t, "loss", func() bool { return hold.Extend(bg, time.Second) != nil && held.Err() != nil })
				s.that("lost", hold.Err())
				s.that("lost", hold.Extend(bg, time.Second))
				s.that("lost", context.Cause(held))
				fails("the context of a lost hold", held, l)
				s.that("lost", hold.Unlock(bg))

				type doer interface {
					Do(context.Context, func(context.Context) error, ...rlock.Option) error
				}
				for what, wrap := range map[string]func(error) error{
					"as it is": func(err error) error { return err },
					"wrapped":  func(err error) error { return fmt.Errorf("step 2: %w", err) },
					"others'":  func(error) error { return errors.New("boom") },
				} {
					err := l.(doer).Do(bg, func(ctx context.Context) error {
						testlock.Must(t, rdb.FlushAll(bg).Err())
						_, _, err := l.TryLock(ctx)
						return wrap(err)
					})
					s.that("lost under Do, "+what, err)
					testlock.WantError(t, "Do", err, rlock.ErrLost)
				}

				given, cancel := context.WithCancelCause(bg)
				cancel(errors.Join(rlock.ErrLost))
				fails("a context with a cause of ours", given, l)

				testlock.Must(t, rdb.Set(bg, "lockline:r:{x}", 1, 0).Err())
				rdb.Set(bg, "lockline:f:{x}", 1, 0)
				rdb.Set(bg, "lockline:q:{x}", 1, 0)
				_, _, err = l.TryLock(bg)
				s.that("another type", err)
				rdb.FlushAll(bg)

				held, hold = take(bg, l)
				_ = session.Close()
				s.that("closed", hold.Err())
				s.that("closed", context.Cause(held))
				s.that("closed", hold.Extend(bg, time.Second))
				s.that("closed", hold.Unlock(bg))
				fails("the context of a closed session's hold", held, l)
				fails("closed", bg, l)
				fails("no name", bg, newLock(other, ""))
				fails("no session", bg, newLock(nil, "x"))
				if s.n < 40 {
					t.Errorf("%d errors were seen", s.n)
				}
			})
		})
	}
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		s := &said{t: t}
		open, closed := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		_ = closed.Close()
		_, err := multilock.NewQuorum([]*rlock.Session{closed})
		s.that("a quorum", err)
		_, err = multilock.NewQuorum([]*rlock.Session{open, open})
		s.that("a quorum", err)
		_, err = rlock.NewSession(nil)
		s.that("a session", err)
		_, err = rlock.NewSession(rdb, rlock.WithReplicas(1, time.Hour))
		s.that("a session", err)
		_, _, err = multilock.New(nil, rlock.New(open, "")).Lock(bg)
		s.that("members", err)
	})
}

package rlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A fuse is a hook that panics at a command, also in a pipeline, while it is set.
type fuse struct {
	at    atomic.Pointer[string] // name of a script or command; nil if not set
	after bool                   // panic after the reply, not before the request
	blown atomic.Int64
}

const blown = "a hook's panic, on purpose"

func (f *fuse) set(at string) { f.at.Store(&at) }

func (f *fuse) mend() { f.at.Store(nil) }

func (f *fuse) meets(cmd redis.Cmder) bool {
	at, name := f.at.Load(), cmd.Name()
	if name == "evalsha" {
		name = testlock.Script(cmd.Args()[1].(string))
	}
	return at != nil && *at == name
}

func (f *fuse) around(cmds []redis.Cmder, next func() error) error {
	hit := slices.ContainsFunc(cmds, f.meets)
	if !hit || f.after {
		if err := next(); err != nil {
			return err
		}
	}
	if hit {
		f.blown.Add(1)
		panic(blown)
	}
	return nil
}

// fused runs a test with two Mutexes of the same name, in two sessions. The client of m has the fuse f. A
// lock that is not released stays taken for longer than the tests wait.
func fused(
	t *testing.T, test func(t *testing.T, f *fuse, m, other *rlock.Mutex, ctx context.Context),
	options ...rlock.SessionOption,
) {
	for kind, newMutex := range testlock.Kinds {
		for _, after := range []bool{false, true} {
			for _, cancelable := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/after %v/cancelable %v", kind, after, cancelable), func(t *testing.T) {
					t.Parallel()
					testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
						var log bytes.Buffer
						f, rdb, theirs := &fuse{after: after}, w.Client, w.Net.Client(t)
						rdb.AddHook(testlock.Around(f.around))
						s := testlock.NewSession(t, rdb,
							append([]rlock.SessionOption{rlock.WithWatchdogTimeout(2 * testlock.Patience),
								rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}, options...)...)
						m := testlock.Warm(t, newMutex(s, "x"))
						ctx := bg
						if cancelable {
							ctx = testlock.Bounded(t)
						}
						test(t, f, m, testlock.Warm(t, newMutex(testlock.NewSession(t, theirs), "x")), ctx)
						testlock.Works(t, m)
						testlock.Must(t, s.Close())
						if f.blown.Load() == 0 {
							t.Error("nothing panicked")
						}
						if got := log.String(); !strings.Contains(got, blown) ||
							!strings.Contains(got, "panics_test.go") {
							t.Errorf("neither panic nor stack: %s", got)
						}
					})
				})
			}
		}
	}
}

// byPanic fails the test unless err names the panic, and matches none of the errors of locks.
func byPanic(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), blown) {
		t.Errorf("%s: %v", what, err)
	}
	for _, other := range []error{rlock.ErrLocked, rlock.ErrLost, rlock.ErrNotHeld, rlock.ErrClosed} {
		if errors.Is(err, other) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Proves: panics
func TestALockRequestThatPanicsIsAnErrorAndGivenBack(t *testing.T) {
	fused(t, func(t *testing.T, f *fuse, m, other *rlock.Mutex, ctx context.Context) {
		f.set("acquire")
		_, _, err := m.Lock(ctx)
		byPanic(t, "Lock", err)
		_, _, err = m.TryLock(ctx)
		byPanic(t, "TryLock", err)
		f.mend()
		testlock.Works(t, other)
	})
}

// Proves: panics
func TestAReleaseThatPanicsIsAnErrorAndDoneInTheBackground(t *testing.T) {
	fused(t, func(t *testing.T, f *fuse, m, other *rlock.Mutex, ctx context.Context) {
		_, hold := testlock.Lock(t, m, ctx)
		f.set("release")
		byPanic(t, "Unlock", hold.Unlock(ctx))
		testlock.Eventually(t, "tried again", func() bool { return f.blown.Load() > 1 })
		f.mend()
		testlock.Works(t, other)
	})
}

func TestAReentryThatPanicsIsAnErrorAndTheHoldGoesOn(t *testing.T) {
	fused(t, func(t *testing.T, f *fuse, m, other *rlock.Mutex, ctx context.Context) {
		held, hold := testlock.Lock(t, m, ctx)
		f.set("renew")
		_, _, err := m.Lock(held)
		byPanic(t, "Lock", err)
		byPanic(t, "Extend", hold.Extend(ctx, time.Hour))
		f.mend()
		_, nested := testlock.Lock(t, m, held)
		testlock.Unlock(t, nested)
		testlock.Unlock(t, hold)
		testlock.Works(t, other)
	})
}

func TestARenewalThatPanicsIsTriedAgain(t *testing.T) {
	fused(t, func(t *testing.T, f *fuse, m, other *rlock.Mutex, ctx context.Context) {
		_, hold := testlock.Lock(t, m, ctx)
		f.set("renew")
		testlock.Eventually(t, "a renewal", func() bool { return f.blown.Load() > 0 })
		f.mend()
		testlock.Renewed(t, hold, 0)
		testlock.Unlock(t, hold)
		testlock.Works(t, other)
	}, rlock.WithWatchdogTimeout(2*time.Second))
}

func TestAnInspectionThatPanicsIsAnError(t *testing.T) {
	fused(t, func(t *testing.T, f *fuse, m, _ *rlock.Mutex, ctx context.Context) {
		testlock.Inspect(t, m) // so that the server has the script
		f.set("inspect")
		if _, err := m.Inspect(ctx); err == nil {
			t.Error("no error")
		}
		f.mend()
	})
}

func TestAHeartbeatThatPanicsIsAnErrorOfThoseWhoWait(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb, f, theirs := w.Client, &fuse{}, w.Net.Client(t)
		rdb.AddHook(testlock.Around(f.around))
		m := testlock.Warm(t, testlock.Kinds["fair"](testlock.NewSession(t, rdb,
			rlock.WithWaiterTimeout(300*time.Millisecond)), "x"))
		_, hold := testlock.Lock(t, testlock.Kinds["fair"](testlock.NewSession(t, theirs), "x"), bg)
		f.set("acquire")
		_, _, err := m.Lock(testlock.Bounded(t))
		byPanic(t, "Lock", err)
		f.mend()
		testlock.Unlock(t, hold)
		testlock.Works(t, m)
	})
}

// Proves: Close
func TestShutdownEndsWithItsContextThoughAnObserverOrALoggerBlocks(t *testing.T) {
	observer := func(what rlock.EventType, blocked <-chan struct{}) rlock.SessionOption {
		return rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == what {
				<-blocked
			}
		}))
	}
	for name, what := range map[string]rlock.EventType{
		"of a failed renewal": rlock.EventRenewFailed, "of a loss": rlock.EventLost,
		"of a release": rlock.EventReleased,
	} {
		t.Run(name, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				blocked := make(chan struct{})
				s := testlock.NewSession(t, w.Client, observer(what, blocked),
					rlock.WithWatchdogTimeout(3*time.Second))
				_, hold := testlock.Lock(t, rlock.New(s, "x"), bg)
				if what == rlock.EventReleased {
					go func() { _ = hold.Unlock(bg) }()
				} else {
					w.Down(true)
				}
				time.Sleep(5 * time.Second)
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				start := time.Now()
				err := s.Shutdown(ctx)
				if took := time.Since(start); took > 1200*time.Millisecond ||
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after %v: %v", took, err)
				}
				close(blocked)
				w.Down(false)
				testlock.Must(t, s.Close()) // waits until the observer has returned
				testlock.Keep(t, hold)
			})
		})
	}
}

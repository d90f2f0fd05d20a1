package multilock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// around is a user's own Locker that runs a function around each TryLock.
type around struct {
	rlock.Locker
	around func(ctx context.Context, next try) (context.Context, *rlock.Hold, error)
}

type try func(context.Context) (context.Context, *rlock.Hold, error)

func (a around) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return a.around(ctx, func(ctx context.Context) (context.Context, *rlock.Hold, error) {
		return a.Locker.TryLock(ctx, options...)
	})
}

// labeled is a user's own Locker that Go cannot compare.
type labeled struct {
	rlock.Locker
	labels []string
}

// The type of the outer Lockers can be compared, but their values cannot, because of the Lockers in them.
func TestLockersThatContainLockersThatGoCannotCompareAreMembers(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		type outer struct{ rlock.Locker }
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 2)
		a, b := outer{labeled{ms[0], []string{"a"}}}, outer{labeled{ms[1], nil}}
		l := multilock.New(a, b, outer{ms[0]}, outer{ms[0]})
		if names := ms[0].Name() + "+" + ms[1].Name() + "+" + ms[0].Name(); l.Name() != names {
			t.Errorf("%q, want %q", l.Name(), names)
		}
	})
}

type valueKey struct{}

// valued returns a Locker that adds a value to the context of each hold.
func valued(l rlock.Locker) rlock.Locker {
	return around{l, func(ctx context.Context, next try) (context.Context, *rlock.Hold, error) {
		held, hold, err := next(ctx)
		return context.WithValue(held, valueKey{}, l.Name()), hold, err
	}}
}

// Users' own Lockers are tried one after another, because one of them may block until another one has
// returned.
func TestLockersThatShareAMutexOfTheUsersDoNotWaitForEachOther(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var mu sync.Mutex
		guarded := func(l rlock.Locker) rlock.Locker {
			return around{l, func(ctx context.Context, next try) (context.Context, *rlock.Hold, error) {
				mu.Lock()
				defer mu.Unlock()
				return next(ctx)
			}}
		}
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 3)
		testlock.Works(t, multilock.New(guarded(ms[0]), ms[1], guarded(ms[2])))
	})
}

func TestBelowTheContextsOfUsersLockersTheNearestHoldIsFound(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 2)
		outer, first := testlock.Lock(t, ms[0], bg)
		for _, members := range [][]rlock.Locker{
			{ms[0], valued(ms[1])}, {valued(ms[1]), ms[0]}, {ms[0], valued(ms[0])},
		} {
			held, hold := testlock.Lock(t, multilock.New(members...), outer)
			if held.Value(valueKey{}) == nil {
				t.Error("the value is not found")
			}
			_, again := testlock.TryLock(t, ms[0], held)
			testlock.Unlock(t, again)
			testlock.Unlock(t, hold)
		}
		testlock.Unlock(t, first)
	})
}

func TestAReaderIsNestedInItsWriter(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		rw := rwlock.New(s, "rw")
		testlock.Works(t, multilock.New(rlock.New(s, "a"), rw, rw.RLocker()))
		if _, _, err := multilock.New(rw.RLocker(), rw).Lock(bg); !errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("a writer in its reader: %v", err)
		}
	})
}

func TestWhatWasTakenIsGivenBackIfALockerPanics(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 3)
		l := multilock.New(ms[0], around{ms[1],
			func(ctx context.Context, next try) (context.Context, *rlock.Hold, error) {
				panic("mine")
			}}, ms[2])
		func() {
			defer func() {
				if recover() != "mine" {
					t.Error("the panic does not reach the caller")
				}
			}()
			_, _, _ = l.TryLock(bg)
		}()
		if !free(t, ms...) {
			t.Error("something is left")
		}
	})
}

// If the client has ContextTimeoutEnabled, WaitAtMost also bounds a request that is in flight when its server
// stops answering.
func TestWaitAtMostBoundsRequestsThatShareAPipeline(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Net.Client(t, func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.ReadTimeout = true, 3*time.Second
		})
		_, members := namesOf(testlock.NewSession(t, rdb), 2)
		l := testlock.Warm(t, multilock.New(members...))
		w.Net.Freeze()
		start := time.Now()
		_, _, err := l.Lock(bg, rlock.WaitAtMost(100*time.Millisecond))
		if took := time.Since(start); err == nil || took > 200*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		w.Net.Thaw()
		time.Sleep(time.Minute)
	})
}

// TryLock waits only for a short time while a release by its session gets no answer. The same holds for a
// MultiLock with this member.
func TestATryDoesNotWaitForASilentServersRelease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		there := testlock.NewWire(t)
		a, b := rlock.New(testlock.NewSession(t, w.Client), "a"),
			rlock.New(testlock.NewSession(t, there.Client), "b")
		testlock.Works(t, multilock.New(a, b))
		hold := testlock.Take(t, b)
		there.Net.Freeze()
		ended := make(chan error, 1)
		go func() { ended <- hold.Unlock(bg) }()
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		_, _, err := multilock.New(a, b).TryLock(bg)
		if took := time.Since(start); !errors.Is(err, rlock.ErrLocked) || took > 300*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		there.Net.Thaw()
		testlock.Must(t, <-ended)
		testlock.Works(t, multilock.New(a, b))
	})
}

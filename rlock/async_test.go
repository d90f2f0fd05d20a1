package rlock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// releases is what an observer was told of the ends of holds.
type releases struct {
	mu   sync.Mutex // guards errs
	errs []error
}

func (r *releases) Observe(_ context.Context, e rlock.Event) {
	if e.Kind == rlock.Released {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, e.Err)
	}
}

func (r *releases) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

func TestAnAsyncUnlockDoesNotWaitForRedis(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock()), "x")
		other := newMutex(testlock.NewSession(t, beside(t, w)), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		got := testlock.Go(bg, other)
		left := make(chan struct{})
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isRelease(r) {
				<-left
			}
			return faultproxy.Pass
		})
		testlock.Unlock(t, hold)
		if ctx.Err() == nil || !errors.Is(hold.Err(), rlock.ErrNotHeld) {
			t.Errorf("after Unlock: %v, %v", ctx.Err(), hold.Err())
		}
		testlock.WantError(t, "a second Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
		if !testlock.Inspect(t, other).Held {
			t.Error("the release has not left, and the lock is free")
		}
		close(left)
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

func TestAfterAnAsyncUnlockTheSessionHasTheLockAgainAtOnce(t *testing.T) {
	const cycles = 50
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		for _, streak := range []time.Duration{0, time.Hour} {
			for _, ctx := range []context.Context{bg, rlock.WithOwner(bg)} {
				m := newMutex(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithStreak(streak)), "x")
				last := int64(0)
				for i := range cycles {
					var hold *rlock.Hold
					var err error
					if i%2 == 0 {
						_, hold, err = m.Lock(ctx)
					} else {
						_, hold, err = m.TryLock(ctx)
					}
					testlock.Must(t, err)
					if hold.Token() <= last {
						t.Errorf("token %d after %d", hold.Token(), last)
					}
					last = hold.Token()
					testlock.Unlock(t, hold)
				}
			}
		}
	})
}

// An owner's goroutine that comes behind an async unlock waits for another one that nests already, and joins it.
func TestAnOwnersGoroutineJoinsTheOneThatGoesOn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		waits := make(testlock.Waits, 10)
		m := rlock.New(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithObserver(waits)), "x")
		owner := rlock.WithOwner(bg)
		_, hold := testlock.Lock(t, m, owner)
		nests, answer := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if script := r.Script(); script == protocol.Keep.Text() || script == protocol.Keep.Digest() {
				once.Do(func() {
					close(nests)
					<-answer
				})
			}
			return faultproxy.Pass
		})
		second := testlock.Go(owner, m)
		testlock.Receive(t, "request", nests)
		testlock.Unlock(t, hold)
		third := testlock.Go(owner, m)
		testlock.Receive(t, "wait", waits)
		close(answer)
		both := []*rlock.Hold{testlock.Granted(t, second), testlock.Granted(t, third)}
		for _, hold := range both {
			testlock.Unlock(t, hold)
		}
	})
}

// Nobody waits for the lock, so a hand-over costs nothing, and a release not more than one that is waited for.
func TestAnAsyncUnlockSendsNoRequestTooMany(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		const cycles = 100
		s := testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithStreak(0))
		m := testlock.Warm(t, newMutex(s, "x"))
		synctest.Wait()
		w.Net.Reset()
		for range cycles {
			testlock.Must(t, testlock.Cycle(bg, m))
		}
		testlock.Must(t, s.Close())
		if n := w.Net.Count("evalsha", "eval"); n != 2*cycles {
			t.Errorf("%d requests for %d cycles", n, cycles)
		}
	})
}

func TestCloseWaitsForAsyncUnlocks(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var logged bytes.Buffer
		s, err := rlock.NewSession(w.Client, rlock.WithAsyncUnlock(), rlock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		testlock.Must(t, err)
		other := testlock.NewSession(t, w.Client)
		var names []string
		for i := range 50 {
			names = append(names, strconv.Itoa(i))
		}
		for _, name := range names {
			ctx, hold := testlock.Lock(t, newMutex(s, name), bg)
			_, nested := testlock.Lock(t, newMutex(s, name), ctx)
			testlock.Unlock(t, nested)
			testlock.Unlock(t, hold)
		}
		testlock.Must(t, s.Close())
		if logged.Len() > 0 {
			t.Errorf("nothing was wrong, and yet it logs %s", logged.String())
		}
		for _, name := range names {
			testlock.Unlock(t, testlock.Take(t, newMutex(other, name))) // TryLock
		}
	})
}

// The answer to an async unlock of a nested hold comes when Close has given the lock back: nothing has failed.
func TestCloseBeforeTheAnswerToANestedAsyncUnlockLogsNothing(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		log := new(bytes.Buffer) // Close waits for all that is logged
		s := testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		m := newMutex(s, "x")
		ctx, _ := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		underWay, given := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "keep.lua") {
				once.Do(func() { close(underWay) })
				<-given
			}
			return faultproxy.Pass
		})
		testlock.Unlock(t, nested)
		testlock.Receive(t, "under way", underWay)
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		other := newMutex(testlock.NewSession(t, beside(t, w)), "x")
		testlock.Eventually(t, "given back", func() bool { return !testlock.Inspect(t, other).Held })
		close(given)
		testlock.Must(t, <-closed)
		if got := log.String(); got != "" {
			t.Errorf("nothing was wrong, and yet it logs %s", got)
		}
	})
}

func TestAnAsyncUnlockTellsTheObserverWhatRedisSays(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var seen releases
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithObserver(&seen)), "x")
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		synctest.Wait()
		_, hold = testlock.Lock(t, m, bg)
		testlock.Must(t, w.Client.FlushAll(bg).Err())
		testlock.Unlock(t, hold) // nobody knows
		synctest.Wait()
		if errs := seen.all(); len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], rlock.ErrLost) {
			t.Errorf("%v", errs)
		}
	})
}

func TestAnAsyncUnlockOfAHoldThatIsKnownToBeLostSaysSo(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock()), "x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Second))
		testlock.Receive(t, "its end", ctx.Done())
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAnAsyncUnlockWhoseReplyIsLostIsSentAgain(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var seen releases
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock(), rlock.WithObserver(&seen)), "x")
		other := testlock.Warm(t, newMutex(testlock.NewSession(t, beside(t, w)), "x")) // the server knows the scripts
		for i, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.DropAndCut} {
			_, hold := testlock.Lock(t, m, bg)
			var once sync.Once
			w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				a := faultproxy.Pass
				if isRelease(r) {
					once.Do(func() { a = action })
				}
				return a
			})
			got := testlock.Go(bg, other)
			testlock.Unlock(t, hold)
			theirs := testlock.Granted(t, got)
			testlock.Eventually(t, "told", func() bool { return len(seen.all()) == i+1 }) // before another holder could hide that it was released
			if err := seen.all()[i]; err != nil {
				t.Errorf("action %d: %v", action, err)
			}
			testlock.Unlock(t, theirs)
		}
	})
}

func TestAMultiLockIsUnlockedWithoutWaiting(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock())
		several := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"))
		other := testlock.NewSession(t, beside(t, w))
		hold := testlock.Take(t, several)
		left := make(chan struct{})
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isRelease(r) {
				<-left
			}
			return faultproxy.Pass
		})
		testlock.Unlock(t, hold)
		if !testlock.Inspect(t, rlock.New(other, "a")).Held {
			t.Error("the release has not left, and the lock is free")
		}
		close(left)
		for range 50 {
			testlock.Unlock(t, testlock.Take(t, several))
		}
		testlock.Unlock(t, testlock.Granted(t, testlock.Go(bg, multilock.New(rlock.New(other, "b"), rlock.New(other, "a")))))
	})
}

func TestAMultiLockThatTriesWaitsForAsyncUnlocksOfItsMembers(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client, rlock.WithAsyncUnlock())
		a, b := rlock.New(s, "a"), rlock.New(s, "b")
		both := multilock.New(a, b)
		for range 20 {
			for _, l := range []rlock.Locker{a, b, both} {
				testlock.Unlock(t, testlock.Take(t, l))
				_, hold := testlock.TryLock(t, both, bg)
				testlock.Unlock(t, hold)
			}
		}
		hold := testlock.Take(t, b)
		if _, _, err := both.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("while a member is held: %v", err)
		}
		testlock.Unlock(t, hold)
	})
}

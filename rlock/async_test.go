package rlock_test

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

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

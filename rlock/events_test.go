package rlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// A ledger is an observer that checks a rule: each Acquired at depth 1 is followed by exactly one Released or
// Lost with the same token.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex // guards open and all
	open map[string]int
	all  []string
}

func (l *ledger) Observe(_ context.Context, e rlock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string]int{}
	}
	id := fmt.Sprint(e.Session, e.Name, e.Token)
	switch {
	case e.Type == rlock.EventAcquired && e.Depth == 1:
		l.open[id]++
	case e.Type == rlock.EventReleased || e.Type == rlock.EventLost:
		if l.open[id]--; l.open[id] < 0 {
			l.t.Errorf("%v without Acquired: %+v", e.Type, e)
		}
	default:
		return
	}
	l.all = append(l.all, e.Type.String())
}

// want fails the test unless the events so far are of these kinds.
func (l *ledger) want(when string, kinds ...string) {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := strings.Join(l.all, " "), strings.Join(kinds, " "); got != want {
		l.t.Errorf("%s: %s, want %s", when, got, want)
	}
}

func TestAHoldIsReleasedForObserversWhenAllThatNestsInItHasEnded(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := &ledger{t: t}
		m := rlock.New(testlock.NewSession(t, w.Client, rlock.WithObserver(l)), "x")
		ctx, outer := testlock.Lock(t, m, bg)
		_, inner := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, outer)
		l.want("the outer hold has ended", "Acquired")
		testlock.Unlock(t, inner)
		l.want("both have ended", "Acquired", "Released")
	})
}

// One of two goroutines gets the lock, and the other one waits for it. For this wait, no request is queued in
// Redis. In the second case, both goroutines nest in the same hold.
func TestAWaitForAGoroutineOfTheSameSessionIsReportedOnce(t *testing.T) {
	for name, newLocker := range map[string]func(*rlock.Session) rlock.Locker{
		"rlock":    func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
		"fairlock": func(s *rlock.Session) rlock.Locker { return fairlock.New(s, "x") },
		"rwlock":   func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				waits := make(testlock.Waits, 10)
				l := newLocker(testlock.NewSession(t, w.Client, rlock.WithObserver(waits)))
				testlock.Works(t, l)
				w.Net.SetDelay(time.Millisecond) // so that both begin before the first reply
				both := func(ctx context.Context) {
					got := make(chan testlock.Grant, 2)
					for range 2 {
						go func() { got <- <-testlock.Go(ctx, l) }()
					}
					first := <-got
					testlock.Must(t, first.Err)
					time.Sleep(time.Second)
					if n := len(waits); n != 1 {
						t.Errorf("one goroutine waits, and %d waits are reported", n)
					}
					for len(waits) > 0 {
						<-waits
					}
					testlock.Unlock(t, first.Hold)
					second := <-got
					testlock.Must(t, second.Err)
					testlock.Unlock(t, second.Hold)
				}
				both(bg)
				ctx, outer := testlock.Lock(t, l, bg)
				both(ctx)
				testlock.Unlock(t, outer)
			})
		})
	}
}

func TestANestedHoldThatIsLostAfterTheOuterOneEndedIsOneLoss(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := &ledger{t: t}
		m := rlock.New(testlock.NewSession(t, w.Client, rlock.WithObserver(l)), "x")
		ctx, outer := testlock.Lock(t, m, bg)
		_, inner := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, outer)
		testlock.ForceUnlock(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		time.Sleep(time.Minute)
		l.want("after a forced unlock", "Acquired", "Lost")
		testlock.WantError(t, "Unlock", inner.Unlock(bg), rlock.ErrLost)
		l.want("after Unlock", "Acquired", "Lost")
	})
}

func TestALossThatUnlockDiscoversIsALossForObserversAndForTheLog(t *testing.T) {
	for kind, lock := range map[string]func(s *rlock.Session) rlock.Locker{
		"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 3).Locker(2) },
		"rwlock":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() },
	} {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				var log bytes.Buffer
				l := &ledger{t: t}
				s := testlock.NewSession(t, w.Client, rlock.WithObserver(l),
					rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				_, hold := testlock.Lock(t, lock(s), bg)
				w.FlushAll()
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
				l.want("after Unlock", "Acquired", "Lost")
				if n := strings.Count(log.String(), "lock lost"); n != 1 {
					t.Errorf("%d lines: %s", n, log.String())
				}
			})
		})
	}
}

func TestCloseReleasesForObserversWhatItGivesBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := &ledger{t: t}
		s := testlock.NewSession(t, w.Client, rlock.WithObserver(l))
		readers := rwlock.New(s, "y")
		testlock.Keep(t, testlock.Take(t, rlock.New(s, "x")))
		testlock.Keep(t, testlock.Take(t, readers.RLocker()))
		testlock.Keep(t, testlock.Take(t, readers.RLocker())) // shares the first reader's grant
		testlock.Must(t, s.Close())
		l.want("after Close", "Acquired", "Acquired", "Acquired", "Released", "Released", "Released")
	})
}

// The log line of a loss names the server, and says why the lease was not renewed.
func TestALossInAnOutageIsLoggedWithTheLastErrorOfARenewal(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var log bytes.Buffer
		s := testlock.NewSession(t, w.Net.Client(t),
			rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		testlock.Keep(t, testlock.Take(t, rlock.New(s, "x")))
		w.Net.Refuse(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, loss, _ := strings.Cut(log.String(), "lock lost")
		if !strings.Contains(loss, "the last renewal failed: ") || !strings.Contains(loss, "refused") ||
			!strings.Contains(loss, "server=") {
			t.Error(log.String())
		}
		w.Net.Refuse(false)
	})
}

// The lease cannot be renewed, because another program has written a value under the key of the lock.
func TestALossByAKeyOfAnotherTypeIsLoggedWithTheHintOfLock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var log bytes.Buffer
		s := testlock.NewSession(t, w.Net.Client(t),
			rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		testlock.Keep(t, testlock.Take(t, rlock.New(s, "x")))
		w.SetError("WRONGTYPE Operation against a key holding the wrong kind of value")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.SetError("")
		_, loss, _ := strings.Cut(log.String(), "lock lost")
		if !strings.Contains(loss, "the last renewal failed: WRONGTYPE") ||
			!strings.Contains(loss, "docs/operations.md#a-value-that-lockline-did-not-write") {
			t.Error(log.String())
		}
	})
}

func TestEachHoldEndsOnceForObserversWhateverBefallsIt(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				l := &ledger{t: t}
				var sessions []*rlock.Session
				for range 3 {
					sessions = append(sessions, testlock.NewSession(t, w.Client, rlock.WithObserver(l),
						rlock.WithWatchdogTimeout(6*time.Second), rlock.WithLinger(time.Second)))
				}
				var users sync.WaitGroup
				for i := range 12 {
					users.Go(func() { stormOfEvents(sessions[i%3], rand.New(rand.NewPCG(seed, uint64(i)))) })
				}
				r := rand.New(rand.NewPCG(seed, 99))
				for range 10 {
					time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
					switch r.IntN(3) {
					case 0:
						w.FlushAll()
					case 1:
						w.Net.CutAll()
					default:
						w.Net.Freeze()
						time.Sleep(time.Duration(r.IntN(9)) * time.Second)
						w.Net.Thaw()
					}
				}
				testlock.Must(t, errors.Join(sessions[0].Close()))
				users.Wait()
				for _, s := range sessions {
					_ = s.Close()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				l.mu.Lock()
				defer l.mu.Unlock()
				for id, n := range l.open {
					if n != 0 {
						t.Errorf("%s has %d ends too few", id, n)
					}
				}
				if len(l.all) < 20 {
					t.Errorf("only %d events", len(l.all))
				}
			})
		})
	}
}

// stormOfEvents locks locks of all kinds. It nests in some holds, and unlocks them in random order.
func stormOfEvents(s *rlock.Session, r *rand.Rand) {
	locks := []rlock.Locker{
		rlock.New(s, "a"), semaphore.New(s, "b", 2).Locker(1),
		rwlock.New(s, "c"), rwlock.New(s, "c").RLocker(),
	}
	for range 40 {
		l := locks[r.IntN(len(locks))]
		ctx, hold, err := l.Lock(bg, rlock.WaitAtMost(time.Second))
		if err != nil {
			continue
		}
		nested, below := hold, error(nil)
		if r.IntN(2) == 0 {
			_, nested, below = l.Lock(ctx, rlock.WaitAtMost(time.Second))
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		first, second := hold, nested
		if r.IntN(2) == 0 && below == nil {
			first, second = nested, hold
		}
		_ = first.Unlock(bg)
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		_ = second.Unlock(bg)
		_ = hold.Unlock(bg)
	}
}

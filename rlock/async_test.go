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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		proxy := faultproxy.New(t, server.Addr)
		m := newMutex(testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock()), "x")
		other := newMutex(testlock.NewSession(t, server.Client(t)), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		got := testlock.Go(bg, other)
		left := make(chan struct{})
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
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
	const cycles = 200
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		for _, streak := range []time.Duration{0, time.Hour} {
			for _, ctx := range []context.Context{bg, rlock.WithOwner(bg)} {
				m := newMutex(testlock.NewSession(t, rdb, rlock.WithAsyncUnlock(), rlock.WithStreak(streak)), "x")
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
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	waits := make(testlock.Waits, 10)
	m := rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock(), rlock.WithObserver(waits)), "x")
	owner := rlock.WithOwner(bg)
	_, hold := testlock.Lock(t, m, owner)
	nests, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
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
}

// Nobody waits for the lock, so a hand-over costs nothing, and a release not more than one that is waited for.
func TestAnAsyncUnlockSendsNoRequestTooMany(t *testing.T) {
	const cycles = 100
	for name, newMutex := range testlock.Kinds {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, testredis.Start(t).Addr)
			s := testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock(), rlock.WithStreak(0))
			m := newMutex(s, "x")
			testlock.Must(t, testlock.Cycle(bg, m))
			testlock.Must(t, s.Close())
			s = testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock(), rlock.WithStreak(0))
			m = newMutex(s, "x")
			testlock.Must(t, testlock.Cycle(bg, m)) // it knows the time
			proxy.Reset()
			for range cycles {
				testlock.Must(t, testlock.Cycle(bg, m))
			}
			testlock.Must(t, s.Close())
			n := proxy.Count("evalsha", "eval")
			if n > 2*cycles+cycles/10 { // the last release from before, and a RedLock's second round
				t.Errorf("%d requests for %d cycles", n, cycles)
			}
		})
	}
}

func TestCloseWaitsForAsyncUnlocks(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		var logged bytes.Buffer
		s, err := rlock.NewSession(rdb, rlock.WithAsyncUnlock(), rlock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		testlock.Must(t, err)
		other := testlock.NewSession(t, rdb)
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
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		proxy := faultproxy.New(t, server.Addr)
		log := new(bytes.Buffer) // Close waits for all that is logged
		s := testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock(), rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		m := newMutex(s, "x")
		ctx, _ := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		underWay, given := make(chan struct{}), make(chan struct{})
		var once sync.Once
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
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
		other := newMutex(testlock.NewSession(t, server.Client(t)), "x")
		testlock.Eventually(t, "given back", func() bool { return !testlock.Inspect(t, other).Held })
		close(given)
		testlock.Must(t, <-closed)
		if got := log.String(); got != "" {
			t.Errorf("nothing was wrong, and yet it logs %s", got)
		}
	})
}

func TestAnAsyncUnlockTellsTheObserverWhatRedisSays(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		var seen releases
		m := newMutex(testlock.NewSession(t, rdb, rlock.WithAsyncUnlock(), rlock.WithObserver(&seen)), "x")
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		testlock.Eventually(t, "released", func() bool { return len(seen.all()) == 1 })
		_, hold = testlock.Lock(t, m, bg)
		testlock.Must(t, rdb.FlushAll(bg).Err())
		testlock.Unlock(t, hold) // nobody knows
		testlock.Eventually(t, "released", func() bool { return len(seen.all()) == 2 })
		if errs := seen.all(); errs[0] != nil || !errors.Is(errs[1], rlock.ErrLost) {
			t.Errorf("%v", errs)
		}
	})
}

func TestAnAsyncUnlockOfAHoldThatIsKnownToBeLostSaysSo(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb, rlock.WithAsyncUnlock()), "x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(50*time.Millisecond))
		testlock.Receive(t, "its end", ctx.Done())
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAnAsyncUnlockWhoseReplyIsLostIsSentAgain(t *testing.T) {
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		proxy := faultproxy.New(t, server.Addr)
		var seen releases
		m := newMutex(testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock(), rlock.WithObserver(&seen)), "x")
		other := testlock.Warm(t, newMutex(testlock.NewSession(t, server.Client(t)), "x")) // the server knows the scripts
		for i, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.DropAndCut} {
			_, hold := testlock.Lock(t, m, bg)
			var once sync.Once
			proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
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
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	s := testlock.NewSession(t, proxy.Client(t), rlock.WithAsyncUnlock())
	several := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"))
	other := testlock.NewSession(t, server.Client(t))
	hold := testlock.Take(t, several)
	left := make(chan struct{})
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
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
}

func TestAMultiLockThatTriesWaitsForAsyncUnlocksOfItsMembers(t *testing.T) {
	s := testlock.NewSession(t, testredis.Start(t).Client(t), rlock.WithAsyncUnlock())
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
}

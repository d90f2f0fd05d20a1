package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestOnlyOneAbandonedRequestIsUnderWayForALock(t *testing.T) {
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	m := warm(t, rlock.New(newSession(t, proxy.Client(t, impatient)), "x"))
	var asked atomic.Int32
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if isScript(r, "lock.lua") {
			asked.Add(1)
			return faultproxy.Swallow
		}
		return faultproxy.Pass
	})
	for range 5 {
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d abandoned requests for one lock at one time", n)
	}
	proxy.OnRequest(nil)
	_, hold := lock(t, m, bounded(t))
	unlock(t, hold)
}

func TestALateCopyThatIsGrantedAfterAForcedUnlockEndsWithItsAttempt(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	m := warm(t, rlock.New(newSession(t, proxy.Client(t, impatient)), "x"))
	operator := rlock.New(newSession(t, server.Client(t)), "x")
	var n atomic.Int32
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if isScript(r, "lock.lua") && n.Add(1) == 1 {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
	_, hold := lock(t, m, bg) // granted to the second copy
	if _, err := operator.ForceUnlock(bg); err != nil {
		t.Fatal(err)
	}
	must(t, proxy.Release(proxy.Held()[0])) // the first one is granted, too
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if st := inspect(t, operator); st.Held {
		t.Errorf("a lock that nobody holds: %+v", st)
	}
}

func TestALateCopyDoesNotTakeAForcedLockBack(t *testing.T) {
	for kind, newMutex := range map[string]maker{"reentrant": rlock.New, "fair": fairlock.New} {
		t.Run(kind, func(t *testing.T) {
			server := testredis.Start(t)
			proxy := faultproxy.New(t, server.Addr)
			m := warm(t, newMutex(newSession(t, proxy.Client(t, impatient)), "x"))
			operator := newMutex(newSession(t, server.Client(t)), "x")
			var n atomic.Int32
			proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if isScript(r, "lock.lua") && n.Add(1) == 1 {
					return faultproxy.Hold
				}
				return faultproxy.Pass
			})
			_, hold := lock(t, m, bg) // granted to the second copy
			_, err := operator.ForceUnlock(bg)
			must(t, err)
			_, theirs := lock(t, operator, bg) // others come and go
			unlock(t, theirs)
			must(t, proxy.Release(proxy.Held()[0]))
			if st := inspect(t, operator); st.Held {
				t.Errorf("taken back: %+v", st)
			}
			if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}

func TestALockThatIsForcedBeforeItsHolderHeardOfIt(t *testing.T) {
	for kind, newMutex := range map[string]maker{"reentrant": rlock.New, "fair": fairlock.New} {
		t.Run(kind, func(t *testing.T) {
			server := testredis.Start(t)
			proxy := faultproxy.New(t, server.Addr)
			m := warm(t, newMutex(newSession(t, proxy.Client(t)), "x"))
			operator := newMutex(newSession(t, server.Client(t)), "x")
			var n atomic.Int32
			proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if !isScript(r, "lock.lua") {
					return faultproxy.Pass
				}
				switch n.Add(1) {
				case 1:
					return faultproxy.CutReply
				case 2:
					if _, err := operator.ForceUnlock(bg); err != nil {
						t.Error(err)
					}
				}
				return faultproxy.Pass
			})
			_, hold, err := m.Lock(bg)
			if kind == "reentrant" { // asks anew
				must(t, err)
				unlock(t, hold)
			} else if err == nil || !strings.Contains(err.Error(), "forced") {
				t.Errorf("Lock: %v", err)
			}
			if st := inspect(t, operator); st.Held || len(st.Queue) > 0 {
				t.Errorf("left: %+v", st)
			}
		})
	}
}

func TestAnOwnerThatLostTheLockDoesNotTakeItAfreshUnnoticed(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		m := rlock.New(newSession(t, rdb), "x")
		request := rlock.WithOwner(bg)
		_, outer := lock(t, m, request)
		if _, err := m.ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the one that notices, and the next
			if _, _, err := m.Lock(request); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("an inner layer of an owner that lost the lock: %v", err)
			}
		}
		if err := outer.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Error(err)
		}
		// From here on the owner knows.
		_, hold := lock(t, m, request)
		unlock(t, hold)
	})
}

func TestGoroutinesOfOneOwnerBehindASiblingGetInTogether(t *testing.T) {
	m := rlock.New(newSession(t, redisOf(t)), "x")
	ctx, outer := lock(t, m, bg)
	_, sibling := lock(t, m, ctx)
	waits := make(chan *rlock.Hold, 2)
	request := rlock.WithOwner(ctx)
	for range 2 {
		go func() {
			_, h, err := m.Lock(request)
			if err != nil {
				t.Error(err)
			}
			waits <- h
		}()
	}
	if _, _, err := m.Lock(ctx, rlock.WaitAtMost(20*time.Millisecond)); !errors.Is(err, rlock.ErrLocked) {
		t.Fatal(err)
	}
	unlock(t, sibling)
	first := <-waits
	select {
	case second := <-waits: // while the first is inside
		unlock(t, second)
	case <-time.After(patience):
		t.Fatal("the second stands behind the first, its own owner")
	}
	unlock(t, first)
	unlock(t, outer)
}

func TestAnOwnerDoesNotWaitForItselfAfterTheOuterHoldWent(t *testing.T) {
	m := rlock.New(newSession(t, redisOf(t)), "x")
	ctx, outer := lock(t, m, bg)
	request := rlock.WithOwner(context.WithoutCancel(ctx))
	_, first := lock(t, m, request)
	unlock(t, outer)
	_, second, err := m.TryLock(request)
	must(t, err)
	unlock(t, second)
	unlock(t, first)
}

func redisOf(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestAServerShortOfMemoryRenewsAndReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	m := rlock.New(newSession(t, rdb, rlock.WithWatchdogTimeout(time.Second)), "x")
	ctx, outer := lock(t, m, bg)
	_, nested := lock(t, m, ctx)
	must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	unlock(t, nested) // its count cannot be noted
	until := outer.Deadline().Add(2 * time.Second)
	eventually(t, "renewed", func() bool { return outer.Deadline().After(until) || outer.Err() != nil })
	if ctx.Err() != nil {
		t.Fatalf("lost: %v", context.Cause(ctx))
	}
	unlock(t, outer)
	if _, _, err := m.Lock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("Lock on a full server: %v", err)
	}
	must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	_, hold := lock(t, m, bg)
	unlock(t, hold)
}

func TestAnUnlockWhoseOutcomeCannotBeKnownDoesNotSayLost(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	m := warm(t, rlock.New(newSession(t, proxy.Client(t)), "x"))
	other := warm(t, rlock.New(newSession(t, server.Client(t)), "x"))
	third := warm(t, rlock.New(newSession(t, server.Client(t)), "x"))
	_, hold := lock(t, m, bg)
	var n atomic.Int32
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if !isScript(r, "release.lua") {
			return faultproxy.Pass
		}
		if n.Add(1) == 1 {
			return faultproxy.CutReply // it worked
		}
		// Somebody else holds the lock and loses it, and another one holds it, before the second copy arrives.
		if _, _, err := other.TryLock(bg); err != nil {
			t.Error(err)
		}
		if _, err := other.ForceUnlock(bg); err != nil {
			t.Error(err)
		}
		if _, _, err := third.TryLock(bg); err != nil {
			t.Error(err)
		}
		return faultproxy.Pass
	})
	if err := hold.Unlock(bg); errors.Is(err, rlock.ErrLost) {
		t.Errorf("the unlock worked, and says %v", err)
	}
}

func TestUnlockAfterCloseSaysWhatBecameOfTheHold(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		s := newSession(t, rdb, rlock.WithWatchdogTimeout(300*time.Millisecond))
		ctx, gone := lock(t, rlock.New(s, "gone"), bg)
		if _, err := rlock.New(s, "gone").ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		within(t, "lost", ctx.Done())
		_, done := lock(t, rlock.New(s, "done"), bg)
		unlock(t, done)
		_, kept := lock(t, rlock.New(s, "kept"), bg)
		must(t, s.Close())
		for hold, want := range map[*rlock.Hold]error{gone: rlock.ErrLost, done: rlock.ErrNotHeld, kept: rlock.ErrClosed} {
			if err := hold.Unlock(bg); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", hold.Name(), err, want)
			}
		}
	})
}

// failures are how code that a user plugs in can fail.
var failures = map[string]func(){"panics": func() { panic("on purpose") }, "ends its goroutine": runtime.Goexit}

// failing is an observer and a log handler that fails each time it is called, and notes of what.
type failing struct {
	fail  func()
	calls sync.Map
}

func (f *failing) Observe(_ context.Context, e rlock.Event) {
	f.calls.Store(e.Kind.String(), true)
	f.fail()
}

func (f *failing) Enabled(context.Context, slog.Level) bool { return true }
func (f *failing) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *failing) WithGroup(string) slog.Handler            { return f }
func (f *failing) Handle(_ context.Context, r slog.Record) error {
	f.calls.Store(r.Message, true)
	f.fail()
	return nil
}

func (f *failing) called(what string) bool { _, ok := f.calls.Load(what); return ok }

func TestAnObserverOrLoggerThatFailsLeavesTheLockWhole(t *testing.T) {
	for how, fail := range failures {
		for kind, newMutex := range kinds {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				rdb, broken := redisOf(t), &pipelines{}
				rdb.AddHook(broken)
				observer, handler := &failing{fail: fail}, &failing{fail: fail}
				s, err := rlock.NewSession(rdb, rlock.WithWatchdogTimeout(300*time.Millisecond), rlock.WithObserver(observer), rlock.WithLogger(slog.New(handler)))
				must(t, err)
				theirRdb := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr})
				t.Cleanup(func() { _ = theirRdb.Close() })
				m, other := newMutex(s, "x"), newMutex(newSession(t, theirRdb), "x")
				_, theirs := lock(t, other, bg)
				if _, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
					t.Errorf("Lock: %v", err)
				}
				unlock(t, theirs)

				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				_, hold := lock(t, m, ctx)
				if _, _, err := m.Lock(ctx, rlock.WaitAtMost(time.Millisecond)); !errors.Is(err, rlock.ErrLocked) { // waits for itself, which is logged
					t.Errorf("Lock: %v", err)
				}
				broken.refuse.Store(true)
				eventually(t, "RenewFailed", func() bool { return observer.called("RenewFailed") })
				broken.refuse.Store(false)
				_ = hold.Unlock(bg) // it may have been lost meanwhile

				held, hold := lock(t, m, bounded(t))
				if _, err := other.ForceUnlock(bg); err != nil {
					t.Error(err)
				}
				within(t, "the loss", held.Done())
				if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
					t.Errorf("Unlock: %v", err)
				}

				_, hold = lock(t, m, bounded(t))
				unlock(t, hold)
				must(t, s.Close())
				for event := rlock.Waiting; event <= rlock.RenewFailed; event++ {
					if !observer.called(event.String()) {
						t.Errorf("%v did not happen", event)
					}
				}
				for _, message := range []string{"lockline: lock lost", "lockline: a wait ended while this same session held the lock; " +
					"if the waiter was called by the holder, it must be passed the context that the holder's Lock returned"} {
					if !handler.called(message) {
						t.Errorf("not logged: %s", message)
					}
				}
			})
		}
	}
}

func TestAWaitThatRunsOutInAnOutageDoesNotSayLocked(t *testing.T) {
	server := testredis.Start(t)
	m := warm(t, rlock.New(newSession(t, server.Client(t, impatient)), "x"))
	server.Freeze()
	_, _, err := m.Lock(bg, rlock.WaitAtMost(50*time.Millisecond))
	if errors.Is(err, rlock.ErrLocked) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing is known of a holder, and it says %v", err)
	}
	server.Thaw()
}

// A simulation found it: the error was that the grant took longer than its lease.
func TestATryLockThatWasForcedAndOvertakenIsLocked(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		other := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr})
		t.Cleanup(func() { _ = other.Close() })
		m, operator := fairlock.New(newSession(t, rdb), "x"), fairlock.New(newSession(t, other), "x")
		var hold *rlock.Hold
		hook := &changeOfMind{}
		hook.f = func() { // granted, and not heard of it yet
			hook.f = func() {}
			if held, err := operator.ForceUnlock(bg); !held || err != nil {
				t.Errorf("ForceUnlock: %v, %v", held, err)
			}
			_, hold = lock(t, m, bg)
		}
		rdb.AddHook(hook)
		if _, _, err := m.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		unlock(t, hold)
	})
}

package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The graveyard: a count that scripts add to drifts when a client resends a command whose reply was lost, as go-redis does.
func TestLostRepliesLeaveEveryCountExact(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client, rlock.WithWatchdogTimeout(6*time.Second))
		m := testlock.Warm(t, rlock.New(s, "x"))
		_, kept := testlock.Lock(t, rlock.New(s, "renewed all the time"), bg)
		lost := testlock.Lossy(w.Net, rand.New(rand.NewPCG(1, 2)), func(r *faultproxy.Request) string {
			file := scripts()[r.Script()]
			if file == "" {
				return ""
			}
			call := file + r.Args[3]
			if file == "keep.lua" { // an Extend and the renewals beside it are several, each with copies that are the same
				call += strings.Join(r.Args[5:], " ")
			}
			return call
		})
		check := func(count string, token int64) {
			t.Helper()
			fields, _ := w.HKeys(lockKey)
			i := slices.IndexFunc(fields, func(field string) bool { return strings.HasPrefix(field, s.ID()) })
			n, key := "", memoryKey
			if i >= 0 {
				n = w.HGet(lockKey, fields[i])
			}
			if count != "" {
				key = lockKey
			}
			if last, _ := w.Client.HGet(bg, key, "t").Int64(); n != count || last != token {
				t.Fatalf("hold count %q, want %q; last token %d, want %d", n, count, last, token)
			}
		}
		last := int64(0)
		for lost() < 200 {
			ctx, h1 := testlock.Lock(t, m, bg)
			testlock.WantAfter(t, h1, last)
			last = h1.Token()
			check("1", last)
			_, h2 := testlock.Lock(t, m, ctx)
			check("2", last)
			testlock.Must(t, h1.Extend(bg, 10*time.Second))
			testlock.Unlock(t, h2)
			check("1", last)
			testlock.Unlock(t, h1) // an unlock that worked reports success
			check("", last)
			time.Sleep(time.Second) // so that renewals are among what is lost
		}
		w.Net.OnRequest(nil)
		testlock.Unlock(t, kept)
	})
}

func TestAnUnlockWhoseReplyWasLostSucceedsThoughOthersHeldTheLockSince(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		b := testlock.Warm(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"))
		_, hold := testlock.Lock(t, a, bg)
		cut := false
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !isScript(r, "release.lua") {
				return faultproxy.Pass
			}
			if !cut {
				cut = true
				return faultproxy.CutReply
			}
			// Before the second copy arrives, somebody else comes and goes, and is there again.
			for i := range 3 {
				_, theirs, err := b.TryLock(bg)
				if err == nil && i < 2 {
					err = theirs.Unlock(bg)
				}
				if err != nil {
					t.Error(err)
				}
				testlock.Keep(t, theirs)
			}
			return faultproxy.Pass
		})
		if err := hold.Unlock(bg); err != nil {
			t.Errorf("the unlock worked, but says %v", err)
		}
		if !testlock.Inspect(t, b).Held {
			t.Error("the second copy freed somebody else's lock")
		}
	})
}

func TestAnUnlockOfALostLockSaysSoThoughOthersHeldItSince(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := rlock.New(testlock.NewSession(t, w.Client), "x"), rlock.New(testlock.NewSession(t, w.Client), "x")
		for others := range 3 {
			_, hold := testlock.Lock(t, a, bg)
			testlock.ForceUnlock(t, b)
			for range others {
				testlock.Works(t, b)
			}
			if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("after %d other holders: %v", others, err)
			}
		}
	})
}

func TestALockThatWasCanceledWhileRedisWasFrozenIsUndone(t *testing.T) {
	for sentBy, patience := range map[string]time.Duration{"a goroutine": 500 * time.Millisecond, "its caller": 5 * time.Millisecond} {
		t.Run("sent by "+sentBy, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
				before := testlock.Inspect(t, m).Token
				w.Net.Freeze()
				ctx, cancel := context.WithTimeout(bg, patience)
				defer cancel()
				_, none, err := m.Lock(ctx) // returns: the server is thawed only below
				if !errors.Is(err, context.DeadlineExceeded) || none != nil {
					t.Errorf("Lock against a frozen Redis: %v", err)
				}
				w.Net.Thaw()
				time.Sleep(5 * time.Second)
				if n, _ := w.Client.HGet(bg, memoryKey, "t").Int64(); n <= before && sentBy == "a goroutine" {
					t.Error("the request has not run: this shows nothing")
				}
				if w.Exists(lockKey) {
					t.Error("it was not undone")
				}
				testlock.Works(t, m)
			})
		})
	}
}

func TestALateCopyOfALockRequestLeavesNoLockBehind(t *testing.T) {
	for which, test := range map[string]func(t *testing.T, w *testlock.Wire, m, other *rlock.Mutex){
		"of an attempt that was given up": func(t *testing.T, w *testlock.Wire, m, other *rlock.Mutex) {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if isScript(r, "lock.lua") {
					cancel()
					return faultproxy.Hold
				}
				return faultproxy.Pass
			})
			if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			w.Net.OnRequest(nil)
			time.Sleep(5 * time.Second) // it is given back
			testlock.Works(t, other)    // others come and go; then the copy arrives
			for _, r := range w.Net.Held() {
				testlock.Must(t, w.Net.Release(r))
			}
		},
		"that comes too late": func(t *testing.T, w *testlock.Wire, m, other *rlock.Mutex) {
			_, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Millisecond)) // not welcome for longer than its lease
			_ = hold.Unlock(bg)
			testlock.Works(t, other)
			time.Sleep(time.Second) // clocks are known to a round trip
			for _, r := range w.Net.Requests() {
				if isScript(&r, "lock.lua") {
					if reply, err := w.Net.Replay(r); err != nil || !strings.HasPrefix(reply, "V ") {
						t.Errorf("%q, %v", reply, err)
					}
				}
			}
		},
	} {
		t.Run(which, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
				other := testlock.Warm(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"))
				w.Net.Reset()
				test(t, w, m, other)
				if st := testlock.Inspect(t, other); st.Held {
					t.Errorf("a lock that nobody knows of: %+v", st)
				}
			})
		})
	}
}

func TestShutdownIsBoundedWhenRedisIsFrozen(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		ctx, _ := testlock.Lock(t, rlock.New(s, "x"), bg)
		w.Net.Freeze()
		bound, cancel := context.WithTimeout(bg, 50*time.Millisecond)
		defer cancel()
		testlock.WantError(t, "Shutdown", s.Shutdown(bound), context.DeadlineExceeded)
		if context.Cause(ctx) != rlock.ErrClosed {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		w.Net.Thaw()
	})
}

// The graveyard: bsm/redislock #27, blnk #354: a release with the context of a request that has ended frees nothing.
func TestUnlockIsSentEvenIfItsContextHasEnded(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Net.Client(t)), "x")
		ctx, cancel := context.WithCancel(bg)
		_, hold := testlock.Lock(t, m, ctx)
		cancel()
		testlock.Must(t, hold.Unlock(ctx))
		if testlock.Inspect(t, m).Held {
			t.Error("still held")
		}
		// And while Redis is frozen only the caller's wait ends.
		_, hold = testlock.Lock(t, m, bg)
		w.Net.Freeze()
		short, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		defer cancel()
		testlock.WantError(t, "Unlock against a frozen Redis", hold.Unlock(short), context.DeadlineExceeded)
		w.Net.Thaw()
		time.Sleep(time.Second)
		if testlock.Inspect(t, m).Held {
			t.Error("not released")
		}
	})
}

package multilock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// refusals are sets of servers of the RedLock "x", which another process holds. Some servers answer late, or
// refuse requests.
var refusals = map[string]struct {
	servers int
	spoil   func(r servers)
}{
	"two servers, one farther away":    {2, func(r servers) { far(r[1]) }},
	"four servers, two farther away":   {4, func(r servers) { far(r[2]); far(r[3]) }},
	"five servers, three farther away": {5, func(r servers) { far(r[2]); far(r[3]); far(r[4]) }},
	"three servers, one farther away and one refuses the user": {3, func(r servers) {
		refuse(r[1])
		far(r[2])
	}},
	"two servers, one refuses the user": {2, func(r servers) { refuse(r[1]) }},
	"two servers, one has a value of another type": {2, func(r servers) {
		r[1].Del(redKey)
		_ = r[1].Set(redKey, "mine")
	}},
}

// far makes a server answer 10 ms later.
func far(w *testlock.Wire) { w.Net.SetDelay(5 * time.Millisecond) }

func refuse(w *testlock.Wire) { w.SetError("NOPERM this user has no permissions") }

func TestATryOfARedLockThatAnotherOneHoldsSaysSoWhateverSomeServersDo(t *testing.T) {
	for what, c := range refusals {
		t.Run(what, func(t *testing.T) {
			withServers(t, c.servers, func(t *testing.T, r servers) {
				m := r.warm(t)
				hold := testlock.Take(t, r.redLock(t))
				synctest.Wait()
				id := r.holders()[0]
				c.spoil(r)
				for range 20 {
					_, _, err := m.TryLock(bg)
					var locked *rlock.LockedError
					if !errors.As(err, &locked) || locked.Holder != id {
						t.Fatalf("TryLock: %v", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				for _, w := range r {
					w.SetError("")
				}
				_ = hold.Unlock(bg)
			})
		})
	}
}

// A Lock returns an error if too few servers can ever grant, because it would wait in vain.
func TestALockOfARedLockThatServersRefuseForGoodDoesNotWaitForItsHolder(t *testing.T) {
	withServers(t, 2, func(t *testing.T, r servers) {
		m := r.warm(t)
		hold := testlock.Take(t, r.redLock(t))
		refuse(r[1])
		start := time.Now()
		_, _, err := m.Lock(bg)
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "NOPERM") ||
			took > time.Second {
			t.Errorf("%v after %v", err, took)
		}
		r[1].SetError("")
		testlock.Unlock(t, hold)
	})
}

func TestALockOfAMultiLockWaitsForAMemberThatIsARedLockOnAServerFartherAway(t *testing.T) {
	withServers(t, 2, func(t *testing.T, r servers) {
		w := testlock.NewWire(t)
		l := multilock.New(rlock.New(testlock.NewSession(t, w.Client), "a"), r.warm(t))
		hold := testlock.Take(t, r.redLock(t))
		far(r[1])
		got := testlock.Go(testlock.Bounded(t), l)
		time.Sleep(3 * time.Second)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

// A MultiLock waits through an outage as the Lock of its member would.
func TestALockOfAMultiLockRidesOutOutagesOfTheServersOfARedLock(t *testing.T) {
	for what, outage := range map[string]struct{ begin, end func(w *testlock.Wire) }{
		"stand still": {func(w *testlock.Wire) { w.Net.Freeze() }, func(w *testlock.Wire) { w.Net.Thaw() }},
		"refuse connections": {func(w *testlock.Wire) { w.Net.Refuse(true) },
			func(w *testlock.Wire) { w.Net.Refuse(false) }},
		"are slow for an instant": {func(w *testlock.Wire) { w.Net.SetDelay(time.Second / 2) },
			func(w *testlock.Wire) { w.Net.SetDelay(0) }},
		"load their data": {func(w *testlock.Wire) { w.SetError("LOADING Redis is loading") },
			func(w *testlock.Wire) { w.SetError("") }},
	} {
		t.Run(what, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				w := testlock.NewWire(t)
				l := multilock.New(rlock.New(testlock.NewSession(t, w.Client), "a"), r.warm(t))
				testlock.Works(t, l)
				for _, w := range r[:2] {
					outage.begin(w)
				}
				time.AfterFunc(1200*time.Millisecond, func() {
					for _, w := range r[:2] {
						outage.end(w)
					}
				})
				start := time.Now()
				ctx, cancel := context.WithTimeout(bg, 8*time.Second)
				defer cancel()
				_, hold, err := l.Lock(ctx)
				if took := time.Since(start); err != nil || took > 4*time.Second {
					t.Fatalf("%v after %v", err, took)
				}
				testlock.Unlock(t, hold)
				time.Sleep(time.Minute)
			})
		})
	}
}

// If servers refuse the user, a Lock of the MultiLock returns an error at once, because waiting would not
// help.
func TestAMultiLockDoesNotWaitForARedLockThatServersRefuseForGood(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		w := testlock.NewWire(t)
		l := multilock.New(rlock.New(testlock.NewSession(t, w.Client), "a"), r.warm(t))
		for _, w := range r[:2] {
			refuse(w)
		}
		start := time.Now()
		_, _, err := l.Lock(bg)
		var member *multilock.MemberError
		if !errors.As(err, &member) || member.Index != 1 || !strings.Contains(err.Error(), "NOPERM") ||
			time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		for _, w := range r[:2] {
			w.SetError("")
		}
	})
}

// The sessions of two servers know only that the context of another call was canceled. The error must not
// name this as the trouble of the servers.
func TestTheErrorOfAVoteDoesNotSayThatItsContextWasCanceled(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		var canceled atomic.Bool
		var all []*rlock.Session
		for i, w := range r {
			rdb := w.Net.Client(t)
			rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
				if i < 2 && canceled.Load() {
					cmds[0].SetErr(context.Canceled)
					return context.Canceled
				}
				return next()
			}))
			all = append(all, testlock.NewSession(t, rdb))
		}
		m := testlock.Warm(t, testlock.RedLock("x", all...))
		canceled.Store(true)
		said := func() {
			t.Helper()
			_, _, err := m.TryLock(bg)
			if err == nil || strings.Contains(err.Error(), "context") || errors.Is(err, context.Canceled) {
				t.Errorf("TryLock: %v", err)
			}
		}
		said()
		canceled.Store(false)
		for _, w := range r[:2] {
			w.Net.Freeze()
		}
		said()
		for _, w := range r[:2] {
			w.Net.Thaw()
		}
		time.Sleep(time.Minute)
	})
}

// again is like process, but one more session leads to the first server, by another address.
func (r servers) again(t *testing.T, options ...rlock.SessionOption) []*rlock.Session {
	second := faultproxy.InMemory(t, r[0].Dial)
	return append(r.process(t, options...), testlock.NewSession(t, second.Client(t), options...))
}

func TestARedLockOfOneServerByTwoAddressesSaysSo(t *testing.T) {
	const want = "another session of the quorum leads to the same server, or to its replica, " +
		"and a majority needs 2 distinct servers"
	for what, take := range map[string]func(*multilock.RedLock) error{
		"Lock": func(m *multilock.RedLock) error { return testlock.Cycle(testlock.Bounded(t), m) },
		"bounded Lock": func(m *multilock.RedLock) error {
			return testlock.Cycle(bg, m, rlock.WaitAtMost(3*time.Second))
		},
		"TryLock": func(m *multilock.RedLock) error { _, _, err := m.TryLock(bg); return err },
	} {
		withServers(t, 1, func(t *testing.T, r servers) {
			m := testlock.RedLock("x", r.again(t)...)
			for range 3 {
				start := time.Now()
				err := take(m)
				if err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), want) ||
					time.Since(start) > time.Second {
					t.Errorf("%s: %v after %v", what, err, time.Since(start))
				}
				testlock.OnePrefix(t, what, err)
				time.Sleep(time.Minute)
			}
			r.onlyTokens(t)
		})
	}
}

// The process knows that the lock is taken, so it waits in the queues of both sessions at once.
func TestARedLockOfOneServerByTwoAddressesSaysSoAlsoBehindOthers(t *testing.T) {
	withServers(t, 1, func(t *testing.T, r servers) {
		m := testlock.RedLock("x", r.again(t)...)
		other := rlock.New(testlock.NewSession(t, r[0].Client), "unused")
		testlock.Works(t, other)
		foreign(r[0])
		_, _, err := m.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		got := testlock.Go(bg, m, rlock.WaitAtMost(10*time.Second))
		time.Sleep(3 * time.Second)
		r[0].Del(redKey)
		time.Sleep(10 * time.Second)
		if g := <-got; g.Err == nil || !strings.Contains(g.Err.Error(), "2 distinct servers") {
			t.Errorf("Lock: %v", g.Err)
		}
	})
}

func TestInspectCountsAServerOfTwoAddressesOnce(t *testing.T) {
	withServers(t, 2, func(t *testing.T, r servers) {
		m := testlock.RedLock("x", r.again(t)...)
		hold := testlock.Take(t, m)
		synctest.Wait()
		if st := testlock.Inspect(t, m); !st.Held || st.Servers != 2 || st.Token != hold.Token() {
			t.Errorf("%+v", st)
		}
		testlock.Unlock(t, hold)
		foreign(r[0])
		if st := testlock.Inspect(t, m); st.Held {
			t.Errorf("a minority holds it: %+v", st)
		}
	})
}

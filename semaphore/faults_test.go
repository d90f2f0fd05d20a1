package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// proxied runs a test in fake time with one semaphore in two sessions. The session of s uses wire.Net, and
// that of other another network. Both know the clock of the server, and the server has the scripts.
func proxied(
	t *testing.T, limit int, test func(t *testing.T, wire *testlock.Wire, s, other *semaphore.Semaphore),
	options ...rlock.SessionOption,
) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		s := semsOf(t, wire.Client, 1, limit, options...)[0]
		other := semsOf(t, faultproxy.InMemory(t, wire.Dial).Client(t), 1, limit)[0]
		for _, s := range []*semaphore.Semaphore{s, other} {
			_, hold := acquire(t, s, 1)
			testlock.Must(t, hold.Extend(bg, 31*time.Second))
			testlock.Unlock(t, hold)
		}
		wire.Net.Reset()
		test(t, wire, s, other)
	})
}

// once applies action to the first request that runs a script.
func once(action faultproxy.Action) func(*faultproxy.Request) faultproxy.Action {
	var first sync.Once
	return func(r *faultproxy.Request) (a faultproxy.Action) {
		if r.Script() != "" {
			first.Do(func() { a = action })
		}
		return a
	}
}

// Proves: semaphore
func TestALostRequestOrReplyChangesNoLimit(t *testing.T) {
	proxied(t, 3, func(t *testing.T, wire *testlock.Wire, s, other *semaphore.Semaphore) {
		for _, action := range []faultproxy.Action{
			faultproxy.CutReply, faultproxy.SwallowReply, faultproxy.DropAndCut, faultproxy.Swallow,
		} {
			wire.Net.OnRequest(once(action))
			if _, err := s.TrySetLimit(bg, 4); err != nil {
				t.Errorf("%v of a TrySetLimit: %v", action, err)
			}
			used(t, "nothing", other, 0)
		}
	})
}

// The first copy of the request sets the limit, but its reply is lost. The last copy comes too late.
// Proves: repeats
func TestATrySetLimitWhoseReplyWasLostHasSetTheLimit(t *testing.T) {
	proxied(t, 3, func(t *testing.T, wire *testlock.Wire, s, other *semaphore.Semaphore) {
		if _, err := s.TrySetLimit(bg, 3); err != nil { // now the server has the script
			t.Fatal(err)
		}
		for _, key := range wire.Keys() {
			wire.Del(key)
		}
		var mu sync.Mutex
		actions := []faultproxy.Action{faultproxy.SwallowReply, faultproxy.Swallow, faultproxy.Swallow,
			faultproxy.Swallow}
		wire.Net.OnRequest(func(r *faultproxy.Request) (a faultproxy.Action) {
			mu.Lock()
			defer mu.Unlock()
			if r.Script() != "" && len(actions) > 0 {
				a, actions = actions[0], actions[1:]
			}
			return a
		})
		if set, err := s.TrySetLimit(bg, 4); !set || err != nil {
			t.Errorf("TrySetLimit: %v, %v", set, err)
		}
		if set, err := other.TrySetLimit(bg, 5); set || err != nil {
			t.Errorf("another TrySetLimit: %v, %v", set, err)
		}
	}, rlock.WithWatchdogTimeout(5*time.Second))
}

// Proves: semaphore
func TestACopyOfARequestThatComesAgainOrLateTakesAndGivesNothing(t *testing.T) {
	proxied(t, 2, func(t *testing.T, wire *testlock.Wire, s, other *semaphore.Semaphore) {
		// After this, the session must expect a late copy of the attempt's request.
		wire.Net.OnRequest(once(faultproxy.SwallowReply))
		_, a := acquire(t, s, 1)
		_, b := acquire(t, s, 1)
		testlock.Unlock(t, a)
		replay := func(script string) (n int) {
			t.Helper()
			for _, r := range wire.Net.Requests() {
				if testlock.Script(r.Script()) == script {
					if _, err := wire.Net.Replay(r); err != nil &&
						!errors.As(err, new(faultproxy.ReplyError)) {
						t.Fatal(err)
					}
					n++
				}
			}
			return n
		}
		// The hold a has ended. A copy of its acquire request must take nothing, and a copy of its release
		// must not release the permit of b. A copy of the acquire request of b gets the same reply again.
		if n := replay("acquire") + replay("release"); n < 4 {
			t.Errorf("%d requests were sent again", n)
		}
		used(t, "one is over", other, 1)
		testlock.Unlock(t, b)
		_, c := acquire(t, other, 2)
		if n := replay("release"); n < 2 {
			t.Errorf("%d releases", n)
		}
		used(t, "another has all", other, 2)
		testlock.Unlock(t, c)
	})
}

// listener returns the owner field of the only waiter, and the channel of its session.
func listener(t *testing.T, s *semaphore.Semaphore) (owner, channel string) {
	t.Helper()
	w := testlock.Inspect(t, s).Queue[0]
	return w.Owner, "lockline:s:" + w.Session
}

// The message of an old grant arrives late. Its time may look later than the present, because the server's
// clock was set back.
func TestAMessageOfAGrantThatIsOverGrantsNothing(t *testing.T) {
	simulated(t, 2, 1, func(t *testing.T, wire *testlock.Wire, sems []*semaphore.Semaphore) {
		rdb := wire.Client
		_, hold := acquire(t, sems[0], 1)
		waiting := join(sems[1], 1)
		owner, channel := listener(t, sems[0])
		nonce := strings.TrimRight(strings.Fields(rdb.HGet(bg, "lockline:p:{x}:w", owner).Val())[3], "/+")
		tell := func(token int64) {
			later := rdb.Time(bg).Val().Add(time.Hour).UnixMicro()
			testlock.Must(t, rdb.Publish(bg, channel,
				fmt.Sprintf("%s %d %d 30000 %s", owner, token, later, nonce)).Err())
		}
		tell(hold.Token() - 1)
		tell(hold.Token()) // the token in the reply that the waiter is queued
		testlock.Waiting(t, "one that was told of a grant that is over", waiting)
		tell(hold.Token() + 1) // as the message of the next grant
		testlock.Keep(t, testlock.Granted(t, waiting))
		testlock.Unlock(t, hold)
	})
}

// Proves: semaphore
func TestAForcedReleaseEndsThatHolderAlone(t *testing.T) {
	simulated(t, 3, 2, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		actx, a := acquire(t, sems[0], 1)
		bctx, b := acquire(t, sems[1], 1)
		waiting := join(sems[2], 1)
		if forced, err := sems[2].ForceRelease(bg, 1); forced || err != nil {
			t.Errorf("a token that nobody has: %v, %v", forced, err)
		}
		if forced, err := sems[2].ForceRelease(bg, a.Token()); !forced || err != nil {
			t.Errorf("ForceRelease: %v, %v", forced, err)
		}
		hold := testlock.Granted(t, waiting)
		testlock.Receive(t, "the forced one's context ends", actx.Done())
		if !errors.Is(context.Cause(actx), rlock.ErrLost) || bctx.Err() != nil ||
			!errors.Is(a.Unlock(bg), rlock.ErrLost) {
			t.Errorf("%v, %v", context.Cause(actx), bctx.Err())
		}
		testlock.Unlock(t, b)
		testlock.Unlock(t, hold)
	}, rlock.WithWatchdogTimeout(3*time.Second))
}

func TestGoroutinesOfASessionAreServedInMemory(t *testing.T) {
	const goroutines, each = 16, 50
	proxied(t, 4, func(t *testing.T, wire *testlock.Wire, s, _ *semaphore.Semaphore) {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					if err := s.Do(bg, 1, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := wire.Net.Count("EVALSHA", "EVAL"); n > goroutines*each/2 {
			t.Errorf("%d requests for %d permits", n, goroutines*each)
		}
	}, rlock.WithHandover(time.Hour))
}

func TestThoseThatWaitInMemoryForALostPermitAskRedis(t *testing.T) {
	simulated(t, 2, 2, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		_, a := acquire(t, sems[0], 1)
		_, b := acquire(t, sems[1], 1)
		waiting := join(sems[0], 1)
		testlock.Unlock(t, b)
		second := testlock.Granted(t, waiting) // so the session knows that other sessions want permits
		third := join(sems[0], 1)
		testlock.Waiting(t, "one for which none is free", third)
		for _, h := range []*rlock.Hold{a, second} {
			if forced, err := sems[1].ForceRelease(bg, h.Token()); !forced || err != nil {
				t.Errorf("ForceRelease: %v, %v", forced, err)
			}
		}
		testlock.Served(t, third)
	}, rlock.WithHandover(time.Hour), rlock.WithWatchdogTimeout(3*time.Second))
}

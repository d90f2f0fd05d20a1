package multilock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestAnUncontendedRedLockIsOneRequestAndOneReleaseForEachServer(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		r.reset()
		ctx, hold := testlock.Lock(t, m, bg)
		if all, locks := r.count(), r.count("acquire"); all != 5 || locks != 5 {
			t.Errorf("%d requests, %d of them to lock", all, locks)
		}
		_, nested := testlock.Lock(t, m, ctx)
		if nested.Token() != hold.Token() {
			t.Errorf("nested token %d, not %d", nested.Token(), hold.Token())
		}
		testlock.Unlock(t, nested)
		if all := r.count(); all != 10 { // servers do not know of the nested hold
			t.Errorf("%d requests to lock, re-enter and leave", all)
		}
		testlock.Unlock(t, hold)
		if all, releases := r.count(), r.count("release"); all != 15 || releases != 5 {
			t.Errorf("%d requests in the end, %d of them releases", all, releases)
		}
		if n := r.store(hold.Token()); n < 3 || r.held() > 0 {
			t.Errorf("the token is stored by %d, and held by %d", n, r.held())
		}
	})
}

func TestWithoutAMajorityEverythingIsGivenBack(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for i, w := range r[:3] { // three servers have another holder
			occupied(w, "other"+string(rune('A'+i))+":1", time.Minute)
		}
		_, _, err := m.TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || locked.Holder != "other" ||
			!strings.Contains(locked.About, "12@there") ||
			locked.Remaining < 50*time.Second {
			t.Fatalf("TryLock: %v, %+v", err, locked)
		}
		if n := r.held(); n != 3 {
			t.Errorf("held by %d", n)
		}
		_, _, err = m.Lock(bg, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Lock", err, rlock.ErrLocked)
		if n := r.held(); n != 3 {
			t.Errorf("held by %d", n)
		}
		// Other holders on two of five servers do not matter.
		r[0].Del(redKey)
		_, hold := testlock.TryLock(t, m, bg)
		testlock.Unlock(t, hold)
		// If no majority answers, the error is not ErrLocked.
		for _, w := range r[:3] {
			w.Kill()
		}
		if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) ||
			!strings.Contains(err.Error(), "3 are needed") {
			t.Fatalf("TryLock of a minority: %v", err)
		}
		if n := r.held(); n != 0 {
			t.Errorf("held by %d", n)
		}
	})
}

// A waiter is granted the servers that are free. If they are no majority, it keeps them no longer than the
// server timeout.
func TestAMinorityIsGivenBackSoThatOthersCanTakeIt(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		const timeout = 200 * time.Millisecond
		for _, w := range r[:2] {
			occupied(w, "otherA:1", time.Hour)
		}
		r[2].Net.Refuse(true)
		q, err := multilock.NewQuorum(r.process(t), multilock.WithServerTimeout(timeout))
		testlock.Must(t, err)
		got := testlock.Go(bg, q.New("x"))
		kept, longest := time.Duration(0), time.Duration(0)
		const step = 10 * time.Millisecond
		for range 5000 { // for longer than a lease
			time.Sleep(step)
			if kept += step; r.held() == 2 {
				kept = 0
			}
			longest = max(longest, kept)
		}
		if len(got) > 0 {
			t.Fatalf("it gave up: %v", (<-got).Err)
		}
		if longest == 0 || longest > 2*timeout {
			t.Errorf("it had a minority for %v", longest)
		}
		r[2].Net.Refuse(false)
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

func TestOperatorsSeeAndFreeARedLockWithoutAMinority(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		ops := r.redLock(t)
		ctx, hold := testlock.Lock(t, r.redLock(t), bg)
		synctest.Wait()
		r[4].Kill()
		st := testlock.Inspect(t, ops)
		if !st.Held || st.Token != hold.Token() || st.Count != 1 || st.Servers != 4 ||
			st.Owner != r.holders()[0] {
			t.Errorf("%+v", st)
		}
		if freed, err := ops.ForceUnlockToken(bg, hold.Token()-1); freed || err != nil || r.held() != 4 {
			t.Errorf("ForceUnlockToken of another holder: %v, %v, held by %d", freed, err, r.held())
		}
		if freed, err := ops.ForceUnlockToken(bg, hold.Token()); !freed || err != nil || r.held() != 0 {
			t.Errorf("ForceUnlockToken: %v, %v, held by %d", freed, err, r.held())
		}
		if st := testlock.Inspect(t, ops); st.Held || st.Token < hold.Token() {
			t.Errorf("%+v", st)
		}
		<-ctx.Done()
		testlock.WantError(t, "Unlock of what was forced", hold.Unlock(bg), rlock.ErrLost)
		time.Sleep(time.Second) // the former holder may have tried to join a server again
		occupied(r[0], "otherA:1", time.Hour)
		if st := testlock.Inspect(t, ops); st.Held {
			t.Errorf("a minority holds it: %+v", st)
		}
		if freed, err := ops.ForceUnlock(bg); !freed || err != nil || r.held() != 0 {
			t.Errorf("ForceUnlock of a minority's: %v, %v, held by %d", freed, err, r.held())
		}
		r[3].Kill()
		r[2].Kill()
		if _, err := ops.Inspect(bg); err == nil {
			t.Error("Inspect of a minority")
		}
		if _, err := ops.ForceUnlock(bg); err == nil {
			t.Error("ForceUnlock of a minority")
		}
	})
}

func TestClosingASessionEndsTheRedLocksOnIt(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		all := r.process(t)
		m, other := testlock.RedLock("x", all...), testlock.RedLock("y", all...)
		free := testlock.RedLock("z", all...)
		ctx, hold := testlock.Lock(t, m, bg)
		_, held := testlock.Lock(t, testlock.RedLock("y", r.process(t)...), bg)
		got := testlock.Go(bg, other)
		mine := testlock.Go(bg, m)
		synctest.Wait()
		testlock.Must(t, all[3].Close())
		if r.held() != 0 || !errors.Is(context.Cause(ctx), rlock.ErrClosed) ||
			!errors.Is(hold.Err(), rlock.ErrClosed) {
			t.Errorf("after Close: held by %d, %v", r.held(), context.Cause(ctx))
		}
		testlock.WantError(t, "the waiter", (<-got).Err, rlock.ErrClosed)
		testlock.WantError(t, "the goroutine that waits behind the holder", (<-mine).Err, rlock.ErrClosed)
		for _, m := range []*multilock.RedLock{m, free} {
			_, _, err := m.Lock(bg)
			testlock.WantError(t, "Lock", err, rlock.ErrClosed)
		}
		_, err := multilock.NewQuorum(all)
		testlock.WantError(t, "NewQuorum", err, rlock.ErrClosed)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrClosed)
		testlock.Unlock(t, held)
	})
}

func TestSessionsThatMakeNoQuorumAreRefused(t *testing.T) {
	withServers(t, 2, func(t *testing.T, r servers) {
		a, again := r.process(t), r.process(t)
		prefix, lease := r.process(t, rlock.WithPrefix("other")),
			r.process(t, rlock.WithWatchdogTimeout(time.Second))
		for want, ss := range map[string][]*rlock.Session{
			"no sessions":              {},
			"session 2 of 2 is nil":    {a[0], nil},
			"sessions 1 and 2 are of":  {a[0], a[0]},
			"its vote would count":     {a[0], again[0]},
			"differ in their prefixes": {a[0], prefix[1]},
			"watchdog timeouts":        {a[0], lease[1]},
			"65 sessions are more":     make([]*rlock.Session, 65),
		} {
			_, err := multilock.NewQuorum(ss)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", want, err)
			}
			testlock.OnePrefix(t, want, err)
		}
		for d, want := range map[time.Duration]string{
			-1: "-1ns is shorter than 1ms", 50: "50ns is shorter than 1ms: is the unit missing",
			7500 * time.Millisecond: "7.5s is not below half of the watchdog timeout, 15s",
		} {
			_, err := multilock.NewQuorum(a, multilock.WithServerTimeout(d))
			if err == nil || !strings.HasPrefix(err.Error(), "lockline: RedLock: WithServerTimeout: "+want) {
				t.Errorf("a timeout of %v: %v", d, err)
			}
		}
		for what, m := range map[string]*multilock.RedLock{
			"a zero Quorum": new(multilock.Quorum).New("x"), "a zero RedLock": {}, "no RedLock": nil,
			"an empty name": testlock.RedLock("", a...),
		} {
			_, _, err := m.Lock(bg)
			_, inspected := m.Inspect(bg)
			_, forced := m.ForceUnlock(bg)
			if err == nil || inspected == nil || forced == nil || m.Name() != "" {
				t.Errorf("%s: %q, %v, %v, %v", what, m.Name(), err, inspected, forced)
			}
		}
		testlock.Must(t, again[1].Close())
		_, err := multilock.NewQuorum(again)
		testlock.WantError(t, "a closed session", err, rlock.ErrClosed)
		// With one or two servers, all servers must grant.
		for n := 1; n <= 2; n++ {
			testlock.Works(t, testlock.RedLock("x", a[:n]...))
		}
		r[1].Kill()
		if _, _, err := testlock.RedLock("x", a...).TryLock(bg); err == nil ||
			errors.Is(err, rlock.ErrLocked) {
			t.Errorf("one of two: %v", err)
		}
	})
}

// RedLocks with the same name and the same sessions are one lock. A lock of another kind with this name is
// another lock.
func TestARedLockIsKnownByItsNameAndItsSessions(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.process(t)
		ctx, hold := testlock.Lock(t, testlock.RedLock("x", all...), bg)
		_, nested := testlock.TryLock(t, testlock.RedLock("x", all...), ctx)
		testlock.Unlock(t, nested)
		_, plain := testlock.TryLock(t, rlock.New(all[0], "x"), bg)
		testlock.Unlock(t, plain)
		_, other := testlock.TryLock(t, testlock.RedLock("y", all...), ctx)
		testlock.Unlock(t, other, hold)
	})
}

// Otherwise a process whose code names the sessions in different orders would wait for itself.
func TestTheOrderOfTheSessionsMakesNoOtherLockInAProcess(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.process(t)
		ctx, hold := testlock.Lock(t, testlock.RedLock("x", all...), bg)
		_, nested := testlock.TryLock(t, testlock.RedLock("x", all[2], all[0], all[1]), ctx)
		testlock.Unlock(t, nested, hold)
	})
}

// Five clients call Lock at the same time. Each gets some servers, again and again, until one of them has a
// majority.
func TestSplitVotesResolve(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		const clients, rounds = 5, 20
		var all []*multilock.RedLock
		for range clients {
			all = append(all, r.warm(t))
		}
		last, votes := int64(0), 0
		for range rounds {
			r.reset()
			ctx, cancel := context.WithTimeout(bg, testlock.Patience)
			winners := make(chan testlock.Grant, clients)
			var wg sync.WaitGroup
			for _, m := range all {
				wg.Go(func() {
					ctx, hold, err := m.Lock(ctx)
					winners <- testlock.Grant{Ctx: ctx, Hold: hold, Err: err}
				})
			}
			first := testlock.Granted(t, winners)
			votes += r.count("acquire")
			testlock.WantAfter(t, first, last)
			last = first.Token()
			cancel()
			wg.Wait()
			close(winners)
			for g := range winners {
				testlock.WantError(t, "another", g.Err, context.Canceled)
			}
			testlock.Unlock(t, first)
			synctest.Wait()
		}
		if votes > 10*5*clients*rounds {
			t.Errorf("%d votes in %d rounds", votes, rounds)
		}
	})
}

func TestALongWaitForTheProcesssOwnHoldIsLogged(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		m := testlock.RedLock("x", r.process(t, rlock.WithLogger(log.Logger()))...)
		hold := testlock.Take(t, m)
		hangs := testlock.Go(bg, m)
		time.Sleep(time.Minute)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, hangs))
		if n := log.Count("have waited for 10 s for a holder of this same session"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// endsNext is a context whose Err returns nil at first, and an error from the second call on.
type endsNext struct {
	context.Context
	asked bool
}

func (c *endsNext) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return context.Canceled
}

func TestATryWhoseContextEndsMeanwhileNamesTheHolderAsAnyOther(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		hold := testlock.Take(t, m)
		defer testlock.Unlock(t, hold)
		var want, got *rlock.LockedError
		if _, _, err := m.TryLock(bg); !errors.As(err, &want) {
			t.Fatal(err)
		}
		_, _, err := m.TryLock(&endsNext{Context: bg})
		if !errors.Is(err, context.Canceled) || !errors.As(err, &got) || got.Holder != want.Holder {
			t.Errorf("%v, and the holder is %q", err, want.Holder)
		}
	})
}

func TestANumberOfServersThatIsOfNoUseIsLogged(t *testing.T) {
	for n := 1; n <= 5; n++ {
		withServers(t, n, func(t *testing.T, r servers) {
			log := new(testlock.Log)
			all := r.process(t, rlock.WithLogger(log.Logger()))
			for range 2 { // the second Quorum is the same as the first, so nothing is logged again
				_, err := multilock.NewQuorum(all)
				testlock.Must(t, err)
			}
			want := map[int]int{1: 1, 2: 1, 4: 1}[n]
			if got := log.Count("should have three or five servers"); got != want {
				t.Errorf("%d servers: logged %d times, want %d", n, got, want)
			}
		})
	}
}

// Unlock returns when a majority has answered. So the release on the slowest server is still in flight when
// the next Lock begins.
func TestALockThatComesBackAtOnceIsTakenOnAllServers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		for i, w := range r {
			w.Net.SetDelay(time.Duration(2+i/2) * 500 * time.Microsecond) // the last one is slower
		}
		m := r.warm(t)
		for range 10 {
			hold := testlock.Take(t, m)
			if n := r.held(); n != 3 {
				t.Fatalf("it is held by %d of 3 servers", n)
			}
			testlock.Unlock(t, hold)
		}
	})
}

// WithHandover has no effect on RedLocks. The next goroutine gets its turn after the sessions of all servers
// know of the release, so no session refuses its round.
func TestEachGoroutineOfAProcessIsGrantedTheLockByAllServers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		var inMemory atomic.Int32
		m := r.warm(t, longTurn, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.HandedOver {
				inMemory.Add(1)
			}
		})))
		r.reset()
		const rounds = 100
		for range rounds {
			hold := testlock.Take(t, m)
			next := testlock.Go(bg, m)
			synctest.Wait()
			testlock.Unlock(t, hold)
			after := testlock.Granted(t, next)
			testlock.WantAfter(t, after, hold.Token())
			if n := r.held(); n != 3 {
				t.Fatalf("it is held by %d of 3 servers", n)
			}
			testlock.Unlock(t, after)
		}
		if n := r.count("acquire"); n != 2*rounds*3 || inMemory.Load() != 0 {
			t.Errorf("%d holds took %d requests to 3 servers; %d were handed over in memory",
				2*rounds, n, inMemory.Load())
		}
		if n := r.count("release"); n != 2*rounds*3 {
			t.Errorf("%d holds were released by %d requests to 3 servers", 2*rounds, n)
		}
	})
}

// One goroutine of a process competes at a time. The goroutines get the lock in the order of their calls.
func TestGoroutinesOfAProcessHaveARedLockInTheirOrder(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m, other := r.warm(t), r.warm(t)
		_, hold := testlock.Lock(t, m, bg)
		var waiting []<-chan testlock.Grant
		for range 5 {
			waiting = append(waiting, testlock.Go(bg, m))
			time.Sleep(300 * time.Millisecond)
		}
		elsewhere := testlock.Go(bg, other)
		// Several checks for an outage run during this wait. They must not change the order.
		time.Sleep(10 * time.Second)
		r.reset()
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, elsewhere)) // the other process was first in line
		for i, got := range waiting {
			synctest.Wait()
			for _, later := range waiting[i+1:] {
				if len(later) > 0 {
					t.Errorf("a later goroutine is served before goroutine %d", i)
				}
			}
			testlock.Unlock(t, testlock.Granted(t, got))
		}
		r.onlyTokens(t)
	})
}

package multilock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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
		if all, locks := r.count(), r.count("lock"); all != 5 || locks != 5 {
			t.Errorf("%d requests to lock, %d of them votes", all, locks)
		}
		_, nested := testlock.Lock(t, m, ctx)
		if nested.Token() != hold.Token() {
			t.Errorf("nested token %d, not %d", nested.Token(), hold.Token())
		}
		testlock.Unlock(t, nested)
		if all := r.count(); all != 15 {
			t.Errorf("%d requests to lock, re-enter and leave", all)
		}
		testlock.Unlock(t, hold)
		if all, releases := r.count(), r.count("release"); all != 20 || releases != 5 {
			t.Errorf("%d requests in the end, %d of them releases", all, releases)
		}
	})
}

func TestTheTokenIsStoredByAMajorityAndGrows(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		a, b := r.redLock(t), r.redLock(t)
		last := int64(0)
		for i := range 20 {
			m := a
			if i%3 == 0 {
				m = b
			}
			if i == 10 { // a server whose clock is an hour ahead has left its mark on a majority
				last = time.Now().Add(time.Hour).UnixMicro()
				for _, w := range r[1:4] {
					w.HSet(redMemory, "t", strconv.FormatInt(last, 10), "b", "somebody:1")
				}
			}
			hold := testlock.Take(t, m)
			stored := 0
			for _, w := range r {
				if token, _ := strconv.ParseInt(w.HGet(redMemory, "t"), 10, 64); token >= hold.Token() {
					stored++
				}
			}
			if hold.Token() <= last || stored < 3 {
				t.Fatalf("round %d: token %d after %d, stored by %d", i, hold.Token(), last, stored)
			}
			last = hold.Token()
			testlock.Unlock(t, hold)
		}
	})
}

func TestWithoutAMajorityEverythingIsGivenBack(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r[:3] { // a foreign holder
			w.HSet(redKey, "other:1", "1", "t", "7", "s", "0", "d", "12@there other")
			w.SetTTL(redKey, time.Minute)
		}
		_, _, err := m.TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || locked.Holder != "other:1" || !strings.Contains(locked.About, "12@there") || locked.Remaining < 50*time.Second {
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
		// On two servers it is in nobody's way.
		r[0].Del(redKey)
		_, hold := testlock.TryLock(t, m, bg)
		testlock.Unlock(t, hold)
		// No majority at all: not a lock error.
		for _, w := range r[:3] {
			w.Kill()
		}
		if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "3 are needed") {
			t.Fatalf("TryLock of a minority: %v", err)
		}
		if n := r.held(); n != 0 {
			t.Errorf("held by %d", n)
		}
	})
}

func TestAWaiterIsWokenByMessagesAndAsksNothingMeanwhile(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		forEver := rlock.WithWatchdogTimeout(24 * time.Hour) // the end of no lease wakes anybody
		_, hold := testlock.Lock(t, r.redLock(t, forEver), bg)
		m := r.redLock(t, forEver)
		r.reset()
		got := testlock.Go(bg, m)
		time.Sleep(10 * time.Second)
		before := r.count("lock")
		if before > 25 {
			t.Errorf("%d votes before it waits", before)
		}
		time.Sleep(10 * time.Minute)
		if votes := r.count("lock"); votes > before {
			t.Errorf("%d votes while it waits", votes-before)
		}
		start := time.Now()
		testlock.Unlock(t, hold)
		h := testlock.Granted(t, got) // a message wakes it
		if took := time.Since(start); took > time.Second {
			t.Errorf("it was woken after %v", took)
		}
		testlock.WantAfter(t, h, hold.Token())
		testlock.Unlock(t, h)
		if n := r.held(); n != 0 {
			t.Errorf("held by %d", n)
		}
	})
}

func TestAHoldOutlivesTheLossOfAMinorityAndNotOfAMajority(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		ctx, hold := testlock.Lock(t, r.redLock(t), bg)
		synctest.Wait()
		r[0].Kill()
		r[1].Net.Freeze()
		time.Sleep(5 * time.Minute)
		testlock.Must(t, hold.Err())
		r[2].Kill()
		<-ctx.Done()
		testlock.WantError(t, "cause", context.Cause(ctx), rlock.ErrLost)
		// The two that are left still have it: nobody else could have had a majority yet.
		for _, w := range r[3:] {
			if left := w.TTL(redKey); left <= 0 {
				t.Errorf("the context ended when the lock was over: %v", left)
			}
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		r[1].Net.Thaw()
		if n := r.held(); n != 0 {
			t.Errorf("held by %d", n)
		}
	})
}

func TestOperatorsSeeAndFreeARedLockWithoutAMinority(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		ops := r.redLock(t)
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		synctest.Wait()
		r[4].Kill()
		if st := testlock.Inspect(t, ops); !st.Held || st.Token != hold.Token() || st.Count != 1 {
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
		m, other := multilock.NewRedLock("x", all...), multilock.NewRedLock("y", all...)
		ctx, hold := testlock.Lock(t, m, bg)
		_, held := testlock.Lock(t, multilock.NewRedLock("y", r.process(t)...), bg)
		got := testlock.Go(bg, other)
		synctest.Wait()
		testlock.Must(t, all[3].Close())
		if r.held() != 0 || !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(hold.Err(), rlock.ErrClosed) {
			t.Errorf("after Close: held by %d, %v", r.held(), context.Cause(ctx))
		}
		testlock.WantError(t, "the waiter", (<-got).Err, rlock.ErrClosed)
		for _, m := range []*rlock.Mutex{m, multilock.NewRedLock("z", all...)} {
			_, _, err := m.Lock(bg)
			testlock.WantError(t, "Lock", err, rlock.ErrClosed)
		}
		testlock.Unlock(t, held)
	})
}

func TestSessionsThatMakeNoQuorumAreRefused(t *testing.T) {
	withServers(t, 2, func(t *testing.T, r servers) {
		a, again := r.process(t), r.process(t)
		prefix, lease := r.process(t, rlock.WithPrefix("other")), r.process(t, rlock.WithWatchdogTimeout(time.Second))
		redisson := r.process(t, rlock.RedissonKeys())
		for want, ss := range map[string][]*rlock.Session{
			"no sessions":              {},
			"session 2 of 2 is nil":    {a[0], nil},
			"sessions 1 and 2 are of":  {a[0], a[0]},
			"its vote would count":     {a[0], again[0]},
			"differ in their prefixes": {a[0], prefix[1]},
			"watchdog timeouts":        {a[0], lease[1]},
			"RedissonKeys":             {a[0], redisson[1]},
		} {
			_, err := multilock.NewQuorum(ss)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", want, err)
			}
			testlock.OnePrefix(t, want, err)
			if _, _, err := multilock.NewRedLock("x", ss...).Lock(bg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: Lock: %v", want, err)
			}
		}
		for _, d := range []time.Duration{-1, time.Hour} {
			if _, err := multilock.NewQuorum(a, multilock.WithServerTimeout(d)); err == nil {
				t.Errorf("a timeout of %v", d)
			}
		}
		if _, _, err := new(multilock.Quorum).New("x").Lock(bg); err == nil {
			t.Error("a zero Quorum")
		}
		if _, _, err := multilock.NewRedLock("", a...).Lock(bg); err == nil {
			t.Error("an empty name")
		}
		// One server, or two: both must grant.
		for n := 1; n <= 2; n++ {
			testlock.Works(t, multilock.NewRedLock("x", a[:n]...))
		}
		r[1].Kill()
		if _, _, err := multilock.NewRedLock("x", a...).TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("one of two: %v", err)
		}
	})
}

// Two Mutexes of one name over the same sessions, in whatever order, are one lock. One of another kind is another.
func TestARedLockIsKnownByItsNameAndItsSessions(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.process(t)
		ctx, hold := testlock.Lock(t, multilock.NewRedLock("x", all...), bg)
		_, nested := testlock.TryLock(t, multilock.NewRedLock("x", all[2], all[0], all[1]), ctx)
		testlock.Unlock(t, nested)
		_, plain := testlock.TryLock(t, rlock.New(all[0], "x"), bg)
		testlock.Unlock(t, plain)
		testlock.Unlock(t, hold)
	})
}

// Five clients that all ask at once split the votes, again and again, until one of them has a majority.
func TestSplitVotesResolve(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		const clients, rounds = 5, 20
		var mutexes []*rlock.Mutex
		for range clients {
			mutexes = append(mutexes, r.warm(t))
		}
		last, votes := int64(0), 0
		for range rounds {
			r.reset()
			ctx, cancel := context.WithTimeout(bg, testlock.Patience)
			winners := make(chan testlock.Grant, clients)
			var wg sync.WaitGroup
			for _, m := range mutexes {
				wg.Go(func() {
					ctx, hold, err := m.Lock(ctx)
					winners <- testlock.Grant{Ctx: ctx, Hold: hold, Err: err}
				})
			}
			first := testlock.Granted(t, winners)
			votes += r.count("lock")
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

// What a second round reserves is given back like any other block, or the next round would find it in its way, and so on.
func TestASecondRoundIsFollowedByNoOther(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		a, b := r.warm(t), r.redLock(t)
		for _, w := range r { // a client whose servers' clocks are ahead was there
			w.HSet(redMemory, "t", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10), "b", "somebody:1")
		}
		r.reset()
		for i := range 10 {
			m := a
			if i >= 5 {
				m = b
			}
			testlock.Works(t, m)
			synctest.Wait()
		}
		if n := r.count("accept"); n > 2*len(r) { // one round for each of the two; else each of the cycles has one
			t.Errorf("the servers were asked to accept another token %d times", n)
		}
	})
}

// Close gives back the rest of a hold's block, and not what was used of it.
func TestCloseKeepsTheTokensThatWereUsed(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.process(t, longStreak)
		m := multilock.NewRedLock("x", all...)
		_, first := testlock.Lock(t, m, bg)
		second := testlock.Go(bg, m)
		synctest.Wait()
		testlock.Unlock(t, first) // handed on in memory
		hold := testlock.Granted(t, second)
		if hold.Token() != first.Token()+1 {
			t.Errorf("token %d after %d: not handed on", hold.Token(), first.Token())
		}
		for _, s := range all {
			testlock.Must(t, s.Close())
		}
		for i, w := range r {
			if stored := w.HGet(redMemory, "t"); stored != strconv.FormatInt(hold.Token(), 10) {
				t.Errorf("server %d remembers %s, not %d", i, stored, hold.Token())
			}
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrClosed)
	})
}

func TestAnEvenNumberOfServersIsLogged(t *testing.T) {
	for n := 1; n <= 5; n++ {
		withServers(t, n, func(t *testing.T, r servers) {
			log := new(logged)
			r.redLock(t, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			if got, want := log.count("even number of servers"), 1-n%2; got != want {
				t.Errorf("%d servers: logged %d times", n, got)
			}
		})
	}
}

package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: election
func TestCandidatesOfOneSessionLeadInTurnWithThoseOfOthers(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := newElection(t, w.Client), newElection(t, w.Client)
		all := newLine(t)
		for i, e := range []*election.Election{a, a, b, a, a, b, b, a} {
			all.join(e, i, fmt.Sprint(i))
		}
		last := int64(0)
		for i := range 8 {
			n := all.next()
			if n.who != i || n.Token() <= last {
				t.Errorf("leader %d is candidate %d, token %d after %d", i, n.who, n.Token(), last)
			}
			if st := testlock.Inspect(t, fairlock.New(testlock.NewSession(t, w.Client),
				"x")); st.Token != n.Token() {
				t.Errorf("Redis knows token %d, not %d", st.Token, n.Token())
			}
			last = n.Token()
			wantLeader(t, b, last, fmt.Sprint(i))
			resign(t, n.Leadership)
		}
	})
}

// Proves: election
func TestCampaignByTheLeaderChangesTheValue(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		ctx, l := lead(t, e, "one")
		again, same, err := e.Campaign(ctx, "two")
		testlock.Must(t, err)
		if again != ctx || same != l {
			t.Error("it is another leadership")
		}
		wantLeader(t, e, l.Token(), "two")
		testlock.Must(t, l.Proclaim(bg, ""))
		wantLeader(t, e, l.Token(), "")
		binary := strings.Repeat("\x00 \xff\n", 1000)
		testlock.Must(t, l.Proclaim(bg, binary))
		wantLeader(t, e, l.Token(), binary)
		resign(t, l)
		wantLeader(t, e, 0, "")

		_, next, err := e.Campaign(context.WithoutCancel(ctx), "three") // ctx has a leadership that has ended
		testlock.Must(t, err)
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		resign(t, next)
	})
}

// Proves: election
func TestEachCampaignBelowOneOwnerIsACandidateOfItsOwn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		owner := rlock.WithOwner(testlock.Bounded(t))
		ctx, first, err := e.Campaign(owner, "one")
		testlock.Must(t, err)
		got := make(chan term, 1)
		go func() {
			ctx, l, err := e.Campaign(owner, "two")
			got <- term{1, ctx, l, err}
		}()
		testlock.Eventually(t, "it waits", func() bool { return candidates(t, e) == 2 })

		// For other locks, the context of the leadership still has the owner of the caller's context.
		m := rlock.New(testlock.NewSession(t, w.Client), "other")
		_, outer := testlock.TryLock(t, m, owner)
		_, inner := testlock.TryLock(t, m, ctx)
		testlock.Unlock(t, inner)
		testlock.Unlock(t, outer)

		resign(t, first)
		second := testlock.Receive(t, "elected", got)
		testlock.Must(t, second.err)
		resign(t, second.Leadership)
	})
}

func TestBelowALeadershipGoroutinesExcludeEachOther(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		ctx, l := lead(t, election.New(s, "x"), "one")
		m := rlock.New(s, "other")
		_, hold := testlock.TryLock(t, m, ctx)
		if _, _, err := m.TryLock(ctx); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		testlock.Unlock(t, hold)
		resign(t, l)
	})
}

// Proves: election
func TestResignHandsOnAndTheSessionLivesOn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		e, other := election.New(s, "x"), newElection(t, w.Client)
		kept, other2 := lead(t, election.New(s, "y"), "y")
		ctx, l := lead(t, e, "one")
		all := newLine(t)
		all.join(other, 1, "two")
		resign(t, l)
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), rlock.ErrNotHeld) {
			t.Errorf("the context: %v, %v", ctx.Err(), context.Cause(ctx))
		}
		testlock.WantError(t, "Err", l.Err(), rlock.ErrNotHeld)
		testlock.WantError(t, "Proclaim", l.Proclaim(bg, "late"), rlock.ErrNotHeld)
		testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrNotHeld)
		next := all.next()
		wantLeader(t, e, next.Token(), "two")
		if kept.Err() != nil {
			t.Error("the session's other leadership has ended")
		}
		resign(t, other2)
		resign(t, next.Leadership)
		testlock.OnlyTokens(t, w.Client)
		if w.Client.HExists(bg, lockKey, "leader").Val() {
			t.Error("the value is still there")
		}
		if left := w.Client.PTTL(bg, lockKey).Val(); left <= 0 || left > 150*time.Second {
			t.Errorf("the hash stays for %v", left)
		}
	})
}

// The errors of calls that cannot succeed use the words of elections, not of locks.
func TestCallsThatCannotSucceedAreToldInTheWordsOfAnElection(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		_, l := lead(t, e, "a")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, _, err := e.Campaign(ctx, "b") // the mistake: the outer context
		testlock.WantError(t, "Campaign", err, context.DeadlineExceeded)
		const hint = "(held by this same session: if the leader called this Campaign, " +
			"it must pass the context that its own Campaign returned)"
		if text := err.Error(); !strings.Contains(text, hint) || strings.Contains(text, "its own Lock") {
			t.Error(text)
		}
		if !errors.As(err, new(*rlock.LockedError)) {
			t.Errorf("the holder is not in %#v", err)
		}
		testlock.Must(t, l.Resign(bg))
		for name, err := range map[string]error{"Resign": l.Resign(bg), "Proclaim": l.Proclaim(bg, "c")} {
			testlock.WantError(t, name, err, rlock.ErrNotHeld)
			const text = `lockline: lock "x": the leadership has ended: Resign was called before`
			if err.Error() != text {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A Proclaim is in flight when its leader resigns, and the lock is released late. If the value were deleted
// before the release, the Proclaim could store it again for a free lock.
func TestNoValueStaysBehindALateRelease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		e := newElection(t, w.Net.Client(t)) // its requests may take a second
		seen := observe(t, newElection(t, rdb))
		_, l := lead(t, e, "warm")
		resign(t, l) // now Redis has the scripts
		_, l = lead(t, e, "one")
		seen.seesAtLast(l.Token(), "one")
		proclaims, retracted, stored := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var first, last, once sync.Once
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			switch kind(r) {
			case "proclaim":
				first.Do(func() { close(proclaims) })
				select {
				case <-retracted:
				case <-time.After(time.Second):
				}
			case "release":
				<-stored
			}
			return faultproxy.Pass
		})
		w.Net.OnReply(func(r faultproxy.Request) {
			switch kind(&r) {
			case "retract":
				last.Do(func() { close(retracted) })
			case "proclaim":
				once.Do(func() { close(stored) })
			}
		})
		proclaimed := make(chan error, 1)
		go func() { proclaimed <- l.Proclaim(bg, "two") }()
		testlock.Receive(t, "request", proclaims)
		resign(t, l)
		<-proclaimed // with or without an error
		testlock.Eventually(t, "the lock is free, without a value", func() bool {
			return !testlock.Inspect(t, fairlock.New(testlock.NewSession(t, rdb), "x")).Held &&
				!rdb.HExists(bg, lockKey, "leader").Val()
		})
		seen.seesAtLast(0, "")
	})
}

func TestOfValuesProclaimedAtOnceTheLastOneStays(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		_, l := lead(t, e, "first")
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := l.Proclaim(bg, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		stored := w.Client.HGet(bg, lockKey, "leader").Val()
		if words := strings.Fields(stored); len(words) != 4 || words[2] != "51" {
			t.Errorf("stored is %q, not the 51st value", stored)
		}
		testlock.Must(t, l.Proclaim(bg, "last"))
		wantLeader(t, e, l.Token(), "last")
		resign(t, l)
	})
}

// Proves: election
func TestALeadershipIsRenewed(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		all := newLine(t)
		_, l := lead(t, e, "one")
		all.join(e, 1, "two") // gets the lock with a first lease
		resign(t, l)
		n := all.next()
		time.Sleep(10 * time.Minute)
		if n.Err() != nil || n.ctx.Err() != nil {
			t.Errorf("it has ended: %v", n.Err())
		}
		wantLeader(t, e, n.Token(), "two")
		resign(t, n.Leadership)
	})
}

// Proves: election
func TestACandidateThatGivesUpLeavesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e, other := newElection(t, w.Client), newElection(t, w.Client)
		_, l := lead(t, e, "one")
		ctx, cancel := context.WithCancel(bg)
		failed := make(chan error, 1)
		go func() {
			_, none, err := other.Campaign(ctx, "two")
			if none != nil {
				t.Error("it has a leadership")
			}
			failed <- err
		}()
		testlock.Eventually(t, "it waits", func() bool { return candidates(t, e) == 2 })
		cancel()
		testlock.WantError(t, "Campaign", testlock.Receive(t, "it gives up", failed), context.Canceled)
		testlock.Eventually(t, "it is gone", func() bool { return candidates(t, e) == 1 })
		resign(t, l)
		testlock.OnlyTokens(t, w.Client)
	})
}

// Proves: election
func TestAClosedSessionIsAnErrorOfEachMethod(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s, other := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		e := election.New(s, "x")
		ctx, l := lead(t, e, "one")
		all := newLine(t)
		all.join(election.New(other, "x"), 1, "two")
		all.join(e, 2, "three")
		observed := make(chan error, 1)
		seen := make(chan election.Leader, 10)
		go func() {
			for l, err := range e.Observe(bg) {
				if err != nil {
					observed <- err
				} else {
					seen <- l
				}
			}
		}()
		testlock.Receive(t, "the leader", seen)
		testlock.Must(t, s.Close())

		testlock.WantError(t, "Observe", testlock.Receive(t, "the end", observed), rlock.ErrClosed)
		<-ctx.Done()
		testlock.WantError(t, "the context", context.Cause(ctx), rlock.ErrClosed)
		testlock.WantError(t, "Err", l.Err(), rlock.ErrClosed)
		testlock.WantError(t, "Proclaim", l.Proclaim(bg, ""), rlock.ErrClosed)
		testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrClosed)
		_, _, err := e.Campaign(bg, "")
		testlock.WantError(t, "Campaign", err, rlock.ErrClosed)
		_, _, err = e.Leader(bg)
		testlock.WantError(t, "Leader", err, rlock.ErrClosed)
		_, err = e.Inspect(bg)
		testlock.WantError(t, "Inspect", err, rlock.ErrClosed)
		for range 2 {
			switch n := testlock.Receive(t, "answered", all.got); n.who {
			case 1:
				testlock.Must(t, n.err) // the lock was handed over at once
				defer resign(t, n.Leadership)
			case 2:
				testlock.WantError(t, "the Campaign that waited", n.err, rlock.ErrClosed)
			}
		}
	})
}

func TestMisuseIsAnError(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		var none *election.Leadership
		if none.Token() != 0 {
			t.Error("a nil Leadership has a token")
		}
		testlock.WantError(t, "Err", none.Err(), rlock.ErrNotHeld)
		testlock.WantError(t, "Resign", none.Resign(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "Proclaim", none.Proclaim(bg, ""), rlock.ErrNotHeld)
		var noContext context.Context
		for what, try := range map[string]struct {
			e   *election.Election
			ctx context.Context
		}{
			"a zero Election":     {new(election.Election), bg},
			"a nil Election":      {nil, bg},
			"a nil session":       {election.New(nil, "x"), bg},
			"an empty name":       {election.New(s, ""), bg},
			"a nil context":       {election.New(s, "x"), noContext},
			"a session that ends": {election.New(closed(t, w.Client), "x"), bg},
		} {
			_, l, err := try.e.Campaign(try.ctx, "")
			_, _, err2 := try.e.Leader(try.ctx)
			_, err3 := try.e.Inspect(try.ctx)
			var err4 error
			for _, err := range try.e.Observe(try.ctx) {
				err4 = err
			}
			if l != nil || err == nil || err2 == nil || err3 == nil || err4 == nil {
				t.Errorf("%s: %v, %v, %v, %v", what, err, err2, err3, err4)
			}
		}
		e := election.New(s, "x")
		long := strings.Repeat("x", election.MaxValue+1)
		if _, _, err := e.Campaign(bg, long); err == nil {
			t.Error("a long value is not refused")
		}
		_, l := lead(t, e, long[1:])
		if err := l.Proclaim(bg, long); err == nil {
			t.Error("a long value is not refused")
		}
		wantLeader(t, e, l.Token(), long[1:])
		resign(t, l)
		if e.Name() != "x" || election.New(s, "").Name() != "" {
			t.Errorf("the name is %q", e.Name())
		}
	})
}

func closed(t *testing.T, rdb rlock.Client) *rlock.Session {
	s := testlock.NewSession(t, rdb)
	testlock.Must(t, s.Close())
	return s
}

// Proves: election
func TestCandidatesAreListedInOrderWithTheLeaderMarked(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var labels []string
		var elections []*election.Election
		for i := range 4 {
			labels = append(labels, fmt.Sprint("node", i))
			elections = append(elections, newElection(t, w.Client, rlock.WithLabel(labels[i])))
		}
		if n := candidates(t, elections[0]); n != 0 {
			t.Errorf("%d before anybody campaigns", n)
		}
		all := newLine(t)
		for i, e := range elections {
			all.join(e, i, "")
		}
		first := all.next()
		st := testlock.Inspect(t, elections[3])
		if st.Label != labels[0] || st.Token != first.Token() ||
			!strings.HasPrefix(st.Owner, st.Session+":") || st.PID == 0 || st.Host == "" {
			t.Errorf("the leader is %+v", st.Holder)
		}
		for i, c := range st.Queue {
			if c.Label != labels[i+1] || !strings.HasPrefix(c.Owner, c.Session+":") ||
				c.PID == 0 || c.Host == "" {
				t.Errorf("candidate %d is %+v", i, c)
			}
		}
		for i := range elections {
			if left := candidates(t, elections[0]); left != 4-i {
				t.Errorf("%d candidates of %d", left, 4-i)
			}
			resign(t, first.Leadership)
			if i < 3 {
				first = all.next()
			}
		}
	})
}

func TestASecondResignAndOneOfANilLeadershipSayWhatIsWrong(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, led, err := election.New(testlock.NewSession(t, w.Client), "x").Campaign(bg, "a")
		testlock.Must(t, err)
		testlock.Must(t, led.Resign(bg))
		if err := led.Resign(bg); !errors.Is(err, rlock.ErrNotHeld) ||
			!strings.HasSuffix(err.Error(), "the leadership has ended: Resign was called before") {
			t.Errorf("%v", err)
		}
		led = nil
		if err := led.Resign(bg); !errors.Is(err, rlock.ErrNotHeld) ||
			!strings.Contains(err.Error(), "the Leadership is nil") {
			t.Errorf("%v", err)
		}
	})
}

// The request of Proclaim is in flight when Resign is called, and reaches Redis after the release.
func TestAProclaimThatResignOvertakesIsNoLoss(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, l := lead(t, newElection(t, w.Client), "one")
		asked, release := make(chan struct{}), make(chan struct{})
		on(t, w, "proclaim", func() faultproxy.Action {
			close(asked)
			<-release
			return faultproxy.Pass
		})
		proclaimed := make(chan error, 1)
		go func() { proclaimed <- l.Proclaim(bg, "two") }()
		testlock.Receive(t, "the value is in flight", asked)
		resign(t, l)
		close(release)
		err := testlock.Receive(t, "the end of Proclaim", proclaimed)
		testlock.WantError(t, "Proclaim", err, rlock.ErrNotHeld)
	})
}

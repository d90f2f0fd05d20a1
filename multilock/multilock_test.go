package multilock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// own is a user's own Locker, which wraps a Mutex.
type own struct {
	rlock.Locker
	name  string
	calls *[]string
}

func (o own) Name() string { return o.name }

func (o own) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	*o.calls = append(*o.calls, "TryLock")
	return o.Locker.TryLock(ctx, options...)
}

func (o own) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	*o.calls = append(*o.calls, "Lock")
	return o.Locker.Lock(ctx, options...)
}

// mixed returns eight locks of several kinds on two servers, and the members of a MultiLock that has these
// locks. Some members are MultiLocks or users' own Lockers.
func mixed(t *testing.T, w *testlock.Wire) (ms []testlock.Mutex, members []rlock.Locker) {
	here := testlock.NewSession(t, w.Client)
	there := testlock.NewSession(t, testlock.NewWire(t).Client)
	ms = []testlock.Mutex{
		rlock.New(here, "a"), fairlock.New(here, "b"), rlock.New(there, "c"), rlock.New(here, "d"),
		rlock.New(here, "e"), fairlock.New(there, "f"), redisson.New(testlock.NewSession(t, w.Client), "g"),
		rlock.New(testlock.NewSession(t, w.Client), "h"),
	}
	for _, m := range ms[:5] {
		members = append(members, m)
	}
	members = append(members, multilock.New(ms[5], multilock.New(ms[6], ms[0])),
		own{ms[7], "own", new([]string)})
	return ms, members
}

func TestAllMembersAreHeldAsOne(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := mixed(t, w)
		l := multilock.New(members...)
		if l.Name() != "a+b+c+d+e+f+g+own" {
			t.Errorf("named %q", l.Name())
		}
		for range 2 {
			ctx, hold := testlock.Lock(t, l, bg)
			parts := hold.Parts()
			if len(parts) != len(ms) {
				t.Fatalf("%d parts", len(parts))
			}
			for i, m := range ms {
				if st, err := m.Inspect(bg); err != nil || !st.Held || st.Count != 1 ||
					st.Token != parts[i].Token() || parts[i].Name() != m.Name() {
					t.Errorf("%s: %+v, %v; token %d", m.Name(), st, err, parts[i].Token())
				}
				// Each member can be locked again with ctx.
				_, nested := testlock.TryLock(t, m, ctx)
				testlock.Unlock(t, nested)
			}
			// So can the MultiLock, and another MultiLock that contains it.
			below, nested := testlock.Lock(t, l, ctx)
			_, wider := testlock.Lock(t, multilock.New(rlock.New(testlock.NewSession(t, w.Client), "z"), l),
				below)
			testlock.Unlock(t, nested)
			testlock.Unlock(t, wider)
			if hold.Token() != 0 || hold.Name() != l.Name() || hold.Err() != nil || ctx.Err() != nil {
				t.Errorf("token %d, name %q, Err %v, %v",
					hold.Token(), hold.Name(), hold.Err(), context.Cause(ctx))
			}
			testlock.Unlock(t, hold)
			if !errors.Is(context.Cause(ctx), rlock.ErrNotHeld) || !errors.Is(hold.Err(), rlock.ErrNotHeld) {
				t.Errorf("after Unlock: cause %v, Err %v", context.Cause(ctx), hold.Err())
			}
			testlock.WantError(t, "second Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
			if !free(t, ms...) {
				t.Error("something is left")
			}
		}
	})
}

func TestWhatTheContextHoldsAlreadyIsReentered(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := namesOf(testlock.NewSession(t, w.Client), 4)
		l := multilock.New(members...)
		for held := range 1 << len(ms) {
			ctx, holds := bg, []*rlock.Hold(nil)
			for i, m := range ms {
				if held>>i&1 == 1 {
					var h *rlock.Hold
					ctx, h = testlock.Lock(t, m, ctx)
					holds = append(holds, h)
				}
			}
			below, hold := testlock.Lock(t, l, ctx)
			_, again := testlock.Lock(t, l, below)
			for i, m := range ms {
				st := testlock.Inspect(t, m)
				if want := 2 + held>>i&1; st.Count != want || hold.Parts()[i].Token() != st.Token {
					t.Errorf("%04b: %s is held %d times, want %d", held, m.Name(), st.Count, want)
				}
			}
			for _, h := range append(holds, again, hold) {
				testlock.Unlock(t, h)
			}
			if !free(t, ms...) {
				t.Fatal("something is left")
			}
		}
	})
}

func TestTheSameMemberIsOneMember(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		x := own{rlock.New(s, "x"), "x", new([]string)}
		l := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"), fairlock.New(s, "a"), rlock.New(s, "a"), x,
			multilock.New(rlock.New(s, "b"), rlock.New(s, "c"), x), multilock.New(rlock.New(s, "c")))
		_, hold := testlock.Lock(t, l, bg)
		if len(hold.Parts()) != 5 || l.Name() != "a+b+a+x+c" {
			t.Errorf("%d parts of %q", len(hold.Parts()), l.Name())
		}
		if st, err := rlock.New(s, "a").Inspect(bg); err != nil || st.Count != 1 {
			t.Errorf("%+v, %v", st, err)
		}
		testlock.Unlock(t, hold)
	})
}

func TestOneLockInTwoSessionsExcludesItselfAndIsToldSo(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		for kind, newMutex := range map[string]testlock.Maker{"r": rlock.New, "f": fairlock.New} {
			a, b := newMutex(testlock.NewSession(t, w.Client), "x"),
				newMutex(testlock.NewSession(t, w.Client), "x")
			_, _, err := multilock.New(a, b).Lock(bg)
			var member *multilock.MemberError
			if !errors.As(err, &member) || errors.Is(err, rlock.ErrLocked) ||
				!strings.Contains(err.Error(), "exclude each other") {
				t.Errorf("%s: %v", kind, err)
			}
			if !free(t, a, b) {
				t.Errorf("%s: something is left", kind)
			}
		}
	})
}

func TestWhatIsWrongWithTheMembersIsToldByEveryUse(t *testing.T) {
	s := testlock.NewSession(t, testlock.Client(t, "127.0.0.1:1")) // no test connects to this address
	good := rlock.New(s, "good")
	var nilOwn *own
	for name, l := range map[string]*multilock.MultiLock{
		"nil": nil, "zero": {}, "no members": multilock.New(), "a nil member": multilock.New(good, nil),
		"a nil Mutex":        multilock.New((*rlock.Mutex)(nil)),
		"a zero Mutex":       multilock.New(good, new(rlock.Mutex)),
		"a nil MultiLock":    multilock.New(good, (*multilock.MultiLock)(nil)),
		"an empty MultiLock": multilock.New(multilock.New()),
		"a nil Locker":       multilock.New(nilOwn), "a bad name": multilock.New(good, rlock.New(s, "")),
		"a nil session": multilock.New(rlock.New(nil, "x")),
	} {
		_, hold, err := l.Lock(bg)
		_, _, tryErr := l.TryLock(bg)
		doErr := l.Do(bg, func(context.Context) error { t.Error("run"); return nil })
		if err == nil || tryErr == nil || doErr == nil || hold != nil {
			t.Errorf("%s: %v, %v, %v", name, err, tryErr, doErr)
		}
		_ = l.Name()
		testlock.OnePrefix(t, name, err)
	}
	l := multilock.New(good)
	for name, option := range map[string]rlock.Option{
		"lease": rlock.WithLease(time.Microsecond), "wait": rlock.WaitAtMost(-1),
	} {
		if ctx, _, err := l.Lock(bg, option); err == nil || ctx != bg ||
			strings.Contains(err.Error(), "dial") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none context.Context
	if _, _, err := l.Lock(none); err == nil {
		t.Error("a nil context")
	}
}

func TestABusyMemberIsNamedAndTheOthersAreGivenBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := mixed(t, w)
		l := multilock.New(members...)
		theirs := testlock.NewSession(t, w.Client)
		for i, m := range ms {
			if i == 2 || i == 5 || i == 6 { // on the other server, or of package redisson
				continue
			}
			other := rlock.New(theirs, m.Name())
			if i == 1 {
				other = fairlock.New(theirs, m.Name())
			}
			_, hold := testlock.Lock(t, other, bg)
			for name, take := range map[string]func() (context.Context, *rlock.Hold, error){
				"TryLock": func() (context.Context, *rlock.Hold, error) { return l.TryLock(bg) },
				"zero": func() (context.Context, *rlock.Hold, error) {
					return l.Lock(bg, rlock.WaitAtMost(0))
				},
				"bounded": func() (context.Context, *rlock.Hold, error) {
					return l.Lock(bg, rlock.WaitAtMost(time.Second))
				},
			} {
				ctx, none, err := take()
				var member *multilock.MemberError
				var locked *rlock.LockedError
				if !errors.As(err, &member) || member.Index != i || !errors.As(err, &locked) ||
					locked.Name != m.Name() || !errors.Is(err, rlock.ErrLocked) {
					t.Errorf("%s, %s is taken: %v", name, m.Name(), err)
				}
				if none != nil || ctx != bg {
					t.Errorf("%s: a hold, or a context", name)
				}
			}
			rest := slices.Delete(slices.Clone(ms), i, i+1)
			if !free(t, rest...) {
				t.Errorf("%s is taken, and others are left", m.Name())
			}
			testlock.Unlock(t, hold)
		}
	})
}

// Proves: MultiLock
func TestItHoldsNothingWhileItWaitsForAny(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		waits := make(testlock.Waits, 100)
		mine, theirs := testlock.NewSession(t, w.Client, rlock.WithObserver(waits)),
			testlock.NewSession(t, w.Client)
		locks := func(s *rlock.Session) []*rlock.Mutex {
			return []*rlock.Mutex{rlock.New(s, "a"), fairlock.New(s, "b"), rlock.New(s, "c")}
		}
		own, others := locks(mine), locks(theirs)
		for i, busy := range others {
			_, hold := testlock.Lock(t, busy, bg)
			got := testlock.Go(bg, multilock.New(own[0], own[1], own[2]))
			if synctest.Wait(); len(waits) != 1 || <-waits != busy.Name() {
				t.Errorf("it does not wait for %q, which is taken", busy.Name())
			}
			for j := range others { // the other members are free, even for calls of this session
				for _, m := range []*rlock.Mutex{own[j], others[j]} {
					if j != i {
						_, h := testlock.TryLock(t, m, bg)
						testlock.Unlock(t, h)
					}
				}
			}
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, got))
		}
	})
}

func TestOneThatIsTakenWhenTheOtherIsGrantedIsWaitedForInstead(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		waits := make(testlock.Waits, 100)
		mine := testlock.NewSession(t, w.Client, rlock.WithObserver(waits))
		a, b := rlock.New(mine, "a"), rlock.New(mine, "b")
		_, busy := testlock.Lock(t, rlock.New(testlock.NewSession(t, w.Client), "a"), bg)
		l, restarts := multilock.New(a, b), 0
		l.OnRestart(func(n int) { restarts = n })
		got := testlock.Go(bg, l)
		waitsFor := func(name string) {
			t.Helper()
			if synctest.Wait(); len(waits) != 1 || <-waits != name {
				t.Fatalf("it does not wait for %q", name)
			}
		}
		waitsFor("a")
		_, taken := testlock.TryLock(t, b, bg) // this session is also refused now
		testlock.Unlock(t, busy)               // so the MultiLock is granted a, and requests b
		waitsFor("b")
		testlock.Unlock(t, taken)
		testlock.Unlock(t, testlock.Granted(t, got))
		if restarts != 2 {
			t.Errorf("it started over %d times", restarts)
		}
	})
}

// The waiter that is granted the first member tries the other members. If a newcomer took one of these for a
// moment, that waiter would have to start over.
func TestANewcomerTakesNoMemberWhereOthersWaitForAnother(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var had atomic.Int32 // how often this session has acquired b
		watch := rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventAcquired && e.Name == "b" {
				had.Add(1)
			}
		}))
		s, theirs := testlock.NewSession(t, w.Client, watch), rlock.New(testlock.NewSession(t, w.Client), "a")
		l := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"))
		hold := testlock.Take(t, l)
		next := testlock.Go(bg, theirs)
		synctest.Wait()
		testlock.Unlock(t, hold) // a is handed over to next
		got := testlock.Go(bg, l)
		synctest.Wait()
		if had.Load() != 1 {
			t.Error("it has had b, though others want a")
		}
		testlock.Unlock(t, testlock.Granted(t, next))
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

func TestTheLossOfAMemberEndsTheContextAndNamesIt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, members := mixed(t, w)
		l := multilock.New(members...)
		for i, m := range ms {
			ctx, hold := testlock.Lock(t, l, bg)
			testlock.ForceUnlock(t, m)
			_ = hold.Parts()[i].Extend(bg, time.Minute) // its reply shows the loss
			testlock.Receive(t, "the context ends", ctx.Done())
			var member *multilock.MemberError
			if cause := context.Cause(ctx); !errors.Is(cause, rlock.ErrLost) || !errors.As(cause, &member) ||
				member.Index != i {
				t.Errorf("%s: the cause is %v", m.Name(), cause)
			}
			if err := hold.Err(); !errors.Is(err, rlock.ErrLost) || !errors.As(err, &member) ||
				member.Index != i {
				t.Errorf("%s: Err %v", m.Name(), err)
			}
			rest := slices.Delete(slices.Clone(ms), i, i+1)
			for _, other := range rest {
				if free(t, other) {
					t.Errorf("%s was lost, and %s given back before Unlock", m.Name(), other.Name())
				}
			}
			if _, _, err := l.Lock(ctx); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("below a lost hold: %v", err)
			}
			if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) || !errors.As(err, &member) ||
				member.Index != i {
				t.Errorf("%s: Unlock %v", m.Name(), err)
			}
			testlock.Eventually(t, "given back", func() bool { return free(t, ms...) })
			testlock.WantError(t, "second Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
		}
	})
}

func TestLeaseDeadlineAndExtendAreOfAllMembers(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		ms := []*rlock.Mutex{rlock.New(s, "a"), fairlock.New(s, "b"),
			rlock.New(s, "c", rlock.WithLease(time.Minute))}
		l := multilock.New(ms[0], ms[1], ms[2])
		_, hold := testlock.Lock(t, l, bg, rlock.WithLease(10*time.Second))
		remaining := func() (all []time.Duration) {
			for i, m := range ms {
				st := testlock.Inspect(t, m)
				if d := time.Until(hold.Parts()[i].Deadline()); d > st.Remaining ||
					time.Until(hold.Deadline()) > d {
					t.Errorf("%s is considered valid for %v, in Redis %v, and all for %v",
						m.Name(), d, st.Remaining, time.Until(hold.Deadline()))
				}
				all = append(all, st.Remaining)
			}
			return all
		}
		for _, d := range remaining() {
			if d > 10*time.Second || d < 5*time.Second {
				t.Errorf("a lease of %v", d)
			}
		}
		testlock.Must(t, hold.Parts()[0].Extend(bg, 3*time.Minute))
		remaining()
		testlock.Must(t, hold.Extend(bg, 2*time.Minute))
		if all := remaining(); all[1] > 2*time.Minute || all[0] <= 2*time.Minute || all[2] > 2*time.Minute ||
			all[1] < time.Minute {
			t.Errorf("extended to %v", all)
		}
		testlock.Unlock(t, hold)
		_, hold = testlock.Lock(t, l, bg) // now the leases are those of the members
		if all := remaining(); all[0] > protocol.DefaultLease || all[2] <= protocol.DefaultLease {
			t.Errorf("leases %v", all)
		}
		testlock.Unlock(t, hold)
	})
}

func TestTooManyPermitsOfOneSemaphoreAreNotSaidToBeOfAnotherSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s, other := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		sem := semaphore.New(s, "x", 1)
		for what, l := range map[string]*multilock.MultiLock{
			"one session":  multilock.New(sem.Locker(1), semaphore.New(s, "x", 1).Locker(1)),
			"two sessions": multilock.New(sem.Locker(1), semaphore.New(other, "x", 1).Locker(1)),
		} {
			_, _, err := l.Lock(testlock.Bounded(t))
			var member *multilock.MemberError
			if !errors.As(err, &member) || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(),
				"members[0] has permits of the same semaphore: use one Locker(n)") {
				t.Errorf("%s: %v", what, err)
			}
			testlock.Works(t, sem.Locker(1))
		}
	})
}

func TestTheTextOfAMemberErrorHasItsIndex(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		mine, theirs := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		a, b := rlock.New(mine, "a"), rlock.New(mine, "b")
		_, hold := testlock.Lock(t, rlock.New(theirs, "b"), bg)
		defer testlock.Unlock(t, hold)
		for _, l := range []*multilock.MultiLock{multilock.New(a, b), multilock.New(multilock.New(a, a), b)} {
			_, _, err := l.TryLock(bg)
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != 1 ||
				!strings.HasPrefix(err.Error(), `lockline: lock "b" (members[1]): locked by `) {
				t.Errorf("%+v: %v", member, err)
			}
		}
		if _, _, err := multilock.New(a, nil).Lock(bg); err == nil ||
			err.Error() != "lockline: members[1] of a MultiLock: it is nil" {
			t.Error(err)
		}
		if _, _, err := multilock.New(a, rlock.New(theirs, "a")).Lock(bg); err == nil ||
			!strings.Contains(err.Error(), `lock "a" (members[1]): it is the same lock as members[0]`) {
			t.Error(err)
		}
	})
}

// ending is a Locker that adds a context to each hold. The test ends this context.
type ending struct {
	rlock.Locker
	end *context.CancelCauseFunc
}

func (e ending) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	ctx, hold, err := e.Locker.TryLock(ctx, options...)
	ctx, *e.end = context.WithCancelCause(ctx)
	return ctx, hold, err
}

func TestTheContextHasEndedAsSoonAsAPartHas(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ms, _ := namesOf(testlock.NewSession(t, w.Client), 2)
		var end context.CancelCauseFunc
		l := multilock.New(ms[0], ending{ms[1], &end})
		for range 100 {
			ctx, hold := testlock.Lock(t, l, bg)
			end(rlock.ErrLost)
			var member *multilock.MemberError
			if ctx.Err() == nil || !errors.As(context.Cause(ctx), &member) || member.Index != 1 ||
				!errors.Is(member, rlock.ErrLost) {
				t.Fatalf("%v, %v", ctx.Err(), context.Cause(ctx))
			}
			testlock.Unlock(t, hold)
		}
	})
}

func TestALockOfPackageRedissonThatIsGivenTwiceIsOneMember(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s, other := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		l := multilock.New(redisson.New(s, "a"), redisson.NewFenced(s, "a"), redisson.New(s, "b"))
		if l.Name() != "a+b" {
			t.Errorf("%q", l.Name())
		}
		testlock.Works(t, l)
		if l := multilock.New(redisson.New(s, "a"), redisson.New(other, "a")); l.Name() != "a+a" {
			t.Errorf("of two sessions: %q", l.Name())
		}
	})
}

// Redisson's hash has no place for a lock that was unlocked but stays taken.
func TestAMemberThatCannotStayTakenIsAnErrorAndTheOthersAreGivenBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		a, b := rlock.New(s, "a"), redisson.New(s, "b")
		_, _, err := multilock.New(a, b).TryLock(bg, rlock.HoldAtLeast(time.Minute))
		var member *multilock.MemberError
		if !errors.As(err, &member) || member.Index != 1 || !strings.Contains(err.Error(), "HoldAtLeast") {
			t.Errorf("%v", err)
		}
		other := testlock.NewSession(t, w.Client)
		testlock.Works(t, rlock.New(other, "a"))
		testlock.Works(t, redisson.New(other, "b"))
	})
}

func TestAMemberStaysTakenForAsLongAsItsOwnHoldAtLeastSays(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s, theirs := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		refused := func(name string) bool {
			_, hold, err := rlock.New(theirs, name).TryLock(bg)
			if err == nil {
				testlock.Unlock(t, hold)
			}
			return errors.Is(err, rlock.ErrLocked)
		}
		l := multilock.New(rlock.New(s, "a", rlock.HoldAtLeast(time.Minute)), rlock.New(s, "b"))
		taken := testlock.Take(t, rlock.New(theirs, "b"))
		_, _, err := l.TryLock(bg)
		testlock.WantError(t, "one is taken", err, rlock.ErrLocked)
		if refused("a") {
			t.Error("what was given back stays taken")
		}
		testlock.Unlock(t, taken)
		testlock.Unlock(t, testlock.Take(t, l, rlock.HoldAtLeast(0)))
		if refused("a") {
			t.Error("it stays taken, though the call says that it need not")
		}
		testlock.Unlock(t, testlock.Take(t, l))
		if !refused("a") || refused("b") {
			t.Error("not the one member alone stays taken")
		}
		time.Sleep(time.Minute)
		testlock.Unlock(t, testlock.Take(t, l, rlock.HoldAtLeast(time.Second)))
		if !refused("a") || !refused("b") {
			t.Error("not all stay taken for as long as the call says")
		}
		time.Sleep(time.Second)
		if refused("a") || refused("b") {
			t.Error("they stay taken for longer")
		}
		wrong := multilock.New(rlock.New(s, "a", rlock.HoldAtLeast(30)))
		_, _, err = wrong.TryLock(bg)
		if err == nil || !strings.Contains(err.Error(), "is the unit missing") {
			t.Errorf("a member's time without a unit: %v", err)
		}
		testlock.Works(t, rlock.New(theirs, "a"))
	})
}

package semaphore_test

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// Proves: semaphore
func TestPermitsAreHeldAndGivenBack(t *testing.T) {
	simulated(t, 2, 3, func(t *testing.T, wire *testlock.Wire, sems []*semaphore.Semaphore) {
		rdb := wire.Client
		ctx, a := acquire(t, sems[0], 2)
		_, b := acquire(t, sems[1], 1)
		st := testlock.Inspect(t, sems[0])
		if st.Limit != 3 || st.Used() != 3 || st.Available() != 0 ||
			len(st.Holders) != 2 || len(st.Queue) != 0 {
			t.Errorf("%+v", st)
		}
		if a.Name() != "x" || a.Err() != nil || a.Token() == 0 || b.Token() <= a.Token() ||
			time.Until(a.Deadline()) < protocol.DefaultLease/3*2 || ctx.Err() != nil {
			t.Errorf("%v %v %v %v", a.Name(), a.Err(), a.Token(), b.Token())
		}
		var full *rlock.LockedError
		if _, hold, err := sems[1].TryAcquire(bg, 1); !errors.As(err, &full) ||
			!errors.Is(err, rlock.ErrLocked) || hold != nil || full.Holder == "" {
			t.Errorf("TryAcquire of a full one: %v", err)
		}
		testlock.Unlock(t, a)
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), rlock.ErrNotHeld) ||
			!errors.Is(a.Unlock(bg), rlock.ErrNotHeld) {
			t.Errorf("after Unlock: %v", context.Cause(ctx))
		}
		_, c := testlock.TryLock(t, sems[1].Locker(2), bg)
		testlock.Unlock(t, c)
		testlock.Unlock(t, b)
		if keys := rdb.Keys(bg, "*").Val(); len(keys) != 1 || rdb.PTTL(bg, keys[0]).Val() > 61*time.Second {
			t.Errorf("what stays: %q", keys)
		}
	})
}

func TestRequestsAreSentInTheirCallersGoroutines(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		here := 0
		wire.Client.AddHook(testlock.Hook{Command: func(
			ctx context.Context, cmd redis.Cmder, next redis.ProcessHook,
		) error {
			if strings.Contains(string(debug.Stack()), "TestRequestsAreSentInTheirCallersGoroutines") {
				here++
			}
			return next(ctx, cmd)
		}})
		s := testlock.NewSession(t, wire.Client)
		sem, rw := semaphore.New(s, "x", 1), rwlock.New(s, "x")
		ctx := testlock.Bounded(t)
		for range 2 { // after the first reply, the session knows that the server answers
			here = 0
			_, p := testlock.Lock(t, sem.Locker(1), ctx)
			testlock.Must(t, p.Unlock(ctx))
			_, p = testlock.TryLock(t, sem.Locker(1), ctx)
			testlock.Must(t, p.Unlock(ctx))
			held, write := testlock.Lock(t, rw, ctx)
			_, read := testlock.Lock(t, rw.RLocker(), held)
			testlock.Must(t, write.Unlock(ctx)) // sends a downgrade, because the reader goes on
			testlock.Must(t, read.Unlock(ctx))
		}
		if here != 7 {
			t.Errorf("%d of 7 were", here)
		}
	})
}

// Proves: semaphore
func TestWaitersAreServedInTheirOrderAllOrNone(t *testing.T) {
	simulated(t, 4, 2, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		_, a := acquire(t, sems[0], 1)
		_, b := acquire(t, sems[0], 1)
		both := join(sems[1], 2)
		one := join(sems[2], 1) // behind the waiter that wants both
		refused(t, "somebody passes the queue", sems[3], 1)
		testlock.Unlock(t, a)
		testlock.Waiting(t, "one that wants both, with one free", both)
		testlock.Waiting(t, "one behind it", one)
		testlock.Unlock(t, b)
		hold := testlock.Granted(t, both)
		testlock.Waiting(t, "one behind it", one)
		testlock.Unlock(t, hold)
		testlock.Served(t, one)
	}, rlock.WithHandover(0))
}

// limited fails the test unless err is this LimitError.
func limited(t *testing.T, what string, err error, want semaphore.LimitError) {
	t.Helper()
	var e *semaphore.LimitError
	if !errors.As(err, &e) || *e != want || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("%s: %v, want %v", what, err, &want)
	}
}

// Proves: semaphore
func TestMoreThanTheLimitIsRefused(t *testing.T) {
	simulated(t, 3, 1, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		_, _, err := sems[0].Acquire(bg, 2)
		limited(t, "Acquire", err, semaphore.LimitError{Name: "x", Wanted: 2, New: 1, Limit: 1})
		_, _, err = sems[0].TryAcquire(bg, 2)
		limited(t, "TryAcquire", err, semaphore.LimitError{Name: "x", Wanted: 2, New: 1, Limit: 1})
		testlock.Must(t, sems[2].SetLimit(bg, 3))
		_, hold := acquire(t, sems[0], 3)

		two, one, three := join(sems[1], 2), join(sems[2], 1), join(sems[1], 3)
		testlock.Must(t, sems[2].SetLimit(bg, 1))
		limited(t, "the first that waits", testlock.Receive(t, "its end", two).Err,
			semaphore.LimitError{Name: "x", Wanted: 2, New: 1, Limit: 1})
		testlock.Waiting(t, "one that wants one", one)
		testlock.Unlock(t, hold)
		testlock.Served(t, one)
		limited(t, "the last", testlock.Receive(t, "its end", three).Err,
			semaphore.LimitError{Name: "x", Wanted: 3, New: 1, Limit: 1})
		_, hold = acquire(t, sems[0], 1)
		testlock.Unlock(t, hold)
	})
}

// Proves: semaphore
func TestAnotherLimitIsRefusedUnlessSetLimitHasSetOne(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		two, five := semaphore.New(s, "x", 2), semaphore.New(testlock.NewSession(t, w.Client), "x", 5)
		_, hold := acquire(t, two, 1)
		_, _, err := five.TryAcquire(bg, 1)
		limited(t, "TryAcquire", err, semaphore.LimitError{Name: "x", Wanted: 1, New: 5, Limit: 2})
		_, _, err = five.Acquire(bg, 1)
		limited(t, "Acquire", err, semaphore.LimitError{Name: "x", Wanted: 1, New: 5, Limit: 2})
		testlock.Must(t, five.SetLimit(bg, 3))
		for _, sem := range []*semaphore.Semaphore{two, five} {
			_, more := acquire(t, sem, 2)
			testlock.Unlock(t, more)
		}
		testlock.Unlock(t, hold)
	})
}

// One request serves only some of the waiters, because all other requests wait for it.
// Proves: semaphore
func TestManyAreServedInSeveralSteps(t *testing.T) {
	simulated(t, 2, 500, func(t *testing.T, w *testlock.Wire, sems []*semaphore.Semaphore) {
		_, hold := acquire(t, sems[0], 500)
		var all []<-chan testlock.Grant
		for i := range 450 { // with different leases, so that each has its own attempt
			all = append(all,
				join(sems[1], 1, rlock.WithLease(time.Minute+time.Duration(i)*time.Millisecond)))
		}
		w.Net.Reset()
		begun := time.Now()
		testlock.Unlock(t, hold)
		for _, got := range all {
			hold := testlock.Granted(t, got)
			defer testlock.Unlock(t, hold)
		}
		asked := 0
		for _, r := range w.Net.Requests() {
			if testlock.Script(r.Script()) == "acquire" {
				asked++
			}
		}
		if took := time.Since(begun); took > time.Second || asked != 2 {
			t.Errorf("the last one was served after %v, by %d requests beside the release", took, asked)
		}
	})
}

// A waiter that wants more than the new limit gets an error, and the waiters behind it are served.
func TestALimitThatIsLoweredSendsThoseAwayThatWantMore(t *testing.T) {
	simulated(t, 2, 3, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		_, a := acquire(t, sems[0], 1)
		wants := make(chan error)
		go func() {
			_, _, err := sems[1].Acquire(bg, 3)
			wants <- err
		}()
		testlock.Settle()
		behind := join(sems[0], 1)
		testlock.Waiting(t, "one behind it", behind)
		start := time.Now()
		testlock.Must(t, sems[0].SetLimit(bg, 2))
		var limit *semaphore.LimitError
		if err := <-wants; !errors.As(err, &limit) || limit.Limit != 2 {
			t.Errorf("Acquire of 3 of 2: %v", err)
		}
		testlock.Unlock(t, testlock.Granted(t, behind), a)
		if took := time.Since(start); took > time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// Proves: semaphore
func TestTheLimitChangesWhileHoldersAreOut(t *testing.T) {
	simulated(t, 2, 3, func(t *testing.T, _ *testlock.Wire, sems []*semaphore.Semaphore) {
		if set, err := sems[0].TrySetLimit(bg, 2); !set || err != nil {
			t.Errorf("TrySetLimit: %v, %v", set, err)
		}
		if set, err := sems[1].TrySetLimit(bg, 5); set || err != nil {
			t.Errorf("the second TrySetLimit: %v, %v", set, err)
		}
		_, a := acquire(t, sems[0], 2)
		if st := testlock.Inspect(t, sems[0]); st.Limit != 2 {
			t.Errorf("%+v", st)
		}
		testlock.Must(t, sems[1].SetLimit(bg, 1))
		if st := testlock.Inspect(t, sems[0]); st.Available() != -1 || a.Err() != nil {
			t.Errorf("%+v: available is %d", st, st.Available())
		}
		more := join(sems[1], 1)
		testlock.Must(t, sems[0].SetLimit(bg, 3)) // wakes the waiter
		testlock.Served(t, more)
		testlock.Unlock(t, a)
		for _, n := range []int{0, -1, semaphore.MaxLimit + 1} {
			if err := sems[0].SetLimit(bg, n); err == nil {
				t.Errorf("SetLimit(%d)", n)
			}
			if _, _, err := sems[0].Acquire(bg, n); err == nil {
				t.Errorf("Acquire(%d)", n)
			}
		}
	})
}

func TestPermitsThatAreKeptServeWhatFitsAndAreGivenBackForWhatDoesNot(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := semaphore.New(testlock.NewSession(t, w.Client, rlock.WithLinger(time.Hour)), "x", 5)
		both := func() {
			_, one := testlock.TryLock(t, s.Locker(1), bg)
			time.Sleep(time.Millisecond) // so that the next token is higher
			_, two := testlock.TryLock(t, s.Locker(2), bg)
			testlock.Unlock(t, one, two)
			time.Sleep(time.Second)
		}
		both() // after this, the session has a subscription
		both()
		w.Net.Reset()
		both()
		if n := w.Net.Count("EVALSHA"); n != 0 {
			t.Errorf("%d requests", n)
		}
		var held atomic.Bool // the two releases may use two connections
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if testlock.Script(r.Args[1]) != "release" || held.Swap(true) {
				return faultproxy.Pass
			}
			time.Sleep(100 * time.Millisecond) // delays one of the releases
			return faultproxy.Pass
		})
		_, all := testlock.TryLock(t, s.Locker(5), bg)
		testlock.Unlock(t, all)
		if !held.Load() {
			t.Error("no release")
		}
	})
}

// Simulation has found this case. The next waiter sent its request only after the longest possible first
// lease, even if the holder's lease was shorter.
func TestTheNextLooksWhenTheFirstLeaseThatWasHandedOverEnds(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		permit := func() rlock.Locker {
			return semaphore.New(testlock.NewSession(t, w.Client), "x", 1).Locker(1)
		}
		_, hold := testlock.Lock(t, permit(), bg)
		brief := testlock.Go(bg, permit(), rlock.WithLease(300*time.Millisecond))
		time.Sleep(time.Second)
		next := testlock.Go(bg, permit())
		time.Sleep(time.Second)
		testlock.Unlock(t, hold)
		start := time.Now()
		lost := testlock.Granted(t, brief) // not unlocked
		testlock.Keep(t, lost)
		testlock.Unlock(t, testlock.Granted(t, next))
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("it looked after %v", took)
		}
		testlock.WantError(t, "Unlock", lost.Unlock(bg), rlock.ErrLost)
	})
}

func TestALowerLimitReachesASessionThatKeepsIdlePermits(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		keeper := semaphore.New(testlock.NewSession(t, w.Client, rlock.WithLinger(time.Hour)), "x", 3)
		testlock.Works(t, keeper.Locker(1)) // from now on its session has a subscription
		time.Sleep(100 * time.Millisecond)
		testlock.Works(t, keeper.Locker(2)) // the session keeps these permits
		if st := testlock.Inspect(t, keeper); len(st.Holders) != 1 {
			t.Fatalf("it keeps %d permits", len(st.Holders))
		}
		operator := semaphore.New(testlock.NewSession(t, w.Client), "x", 3)
		testlock.Must(t, operator.SetLimit(bg, 1))
		time.Sleep(100 * time.Millisecond)
		if st := testlock.Inspect(t, operator); len(st.Holders) > 0 {
			t.Errorf("%d holders keep more permits than there are", len(st.Holders))
		}
	})
}

func TestWhoeverWaitsForPermitsOfItsOwnSessionIsToldSo(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := semaphore.New(testlock.NewSession(t, w.Client), "x", 3)
		_, hold, err := s.Acquire(bg, 2)
		testlock.Must(t, err)
		const hint = "permits that this same session holds: 2; if their holder called this Acquire, " +
			"it waits for itself"
		_, _, tried := s.TryAcquire(bg, 2)
		_, _, waited := s.Acquire(bg, 2, rlock.WaitAtMost(time.Second))
		for _, err := range []error{tried, waited} {
			if !errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), hint) {
				t.Errorf("%v", err)
			}
		}
		other := semaphore.New(testlock.NewSession(t, w.Client), "x", 3)
		_, _, err = other.TryAcquire(bg, 2)
		if err == nil || strings.Contains(err.Error(), "this same session") {
			t.Errorf("another session: %v", err)
		}
		testlock.Unlock(t, hold)
	})
}

func TestGoroutinesThatAcquireAtTheSameTimeHaveTheirOwnNotes(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := semaphore.New(testlock.NewSession(t, w.Client), "x", 3)
		testlock.Works(t, s.Locker(1))
		w.Net.SetDelay(50 * time.Millisecond) // so that replies come after all requests are sent
		notes := []string{"first", "second", "third"}
		var got []<-chan testlock.Grant
		for _, note := range notes {
			got = append(got, testlock.Go(testlock.Bounded(t), s.Locker(1), rlock.WithNote(note)))
			synctest.Wait()
		}
		var holds []*rlock.Hold
		for _, g := range got {
			holds = append(holds, testlock.Granted(t, g))
		}
		var shown []string
		for _, h := range testlock.Inspect(t, s).Holders {
			shown = append(shown, h.Note)
		}
		if slices.Sort(shown); !slices.Equal(shown, notes) {
			t.Errorf("the holders have the notes %q", shown)
		}
		testlock.Unlock(t, holds...)
	})
}

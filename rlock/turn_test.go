package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The tests of this file are about handing a lock over in memory.

// calls counts the requests for scripts that a client sends from now on.
func calls(rdb *redis.Client) *atomic.Int64 {
	n := new(atomic.Int64)
	rdb.AddHook(testlock.Hook{Command: func(
		ctx context.Context, cmd redis.Cmder, next redis.ProcessHook,
	) error {
		n.Add(1)
		return next(ctx, cmd)
	}})
	return n
}

// handed is the result of a Lock, and the number of its goroutine.
type handed struct {
	who int
	testlock.Grant
}

// queueUp starts n goroutines that lock m. Each begins to wait before the next one starts.
func queueUp(m *rlock.Mutex, n int, ctx context.Context, options ...rlock.Option) <-chan handed {
	got := make(chan handed, n)
	for i := range n {
		go func() {
			ctx, hold, err := m.Lock(ctx, options...)
			got <- handed{i, testlock.Grant{Ctx: ctx, Hold: hold, Err: err}}
		}()
		synctest.Wait()
	}
	return got
}

// everyKindSimulated runs a test in fake time for each kind. The session hands locks over in memory for up to
// a minute.
func everyKindSimulated(
	t *testing.T, test func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker),
) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		test(t, w, testlock.NewSession(t, w.Client, rlock.WithHandover(time.Minute)), newMutex)
	})
}

func TestAHandOverInsideASessionCostsNoRequest(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		id := s.ID()
		m := newMutex(s, "x")
		_, warm := testlock.Lock(t, m, bg)
		testlock.Unlock(t, warm)
		_, hold := testlock.Lock(t, m, bg)
		got := queueUp(m, 10, bg)
		time.Sleep(time.Second) // waiters that queue in Redis are queued now
		testlock.Inspect(t, m)  // so that the server has the script
		count := calls(w.Client)
		last := hold.Token()
		testlock.Unlock(t, hold)
		for i := range 10 {
			h := <-got
			if h.Err != nil || h.who != i || h.Hold.Token() <= last || h.Hold.Err() != nil ||
				h.Ctx.Err() != nil {
				t.Fatalf("number %d: %+v", i, h)
			}
			if i > 0 && h.Hold.Token() != last+1 {
				t.Errorf("number %d has token %d after %d", i, h.Hold.Token(), last)
			}
			last = h.Hold.Token()
			if st := testlock.Inspect(t, m); !st.Held || st.Session != id {
				t.Errorf("Redis does not know that the session holds it: %+v", st)
			}
			testlock.Unlock(t, h.Hold)
		}
		// Inspect has sent ten requests. The last Unlock sends one. If waiters queue in Redis, the first
		// Unlock also sends one, which hands the lock over.
		n := count.Load() - 10
		if fair := strings.HasSuffix(t.Name(), "fair"); fair && n != 2 || !fair && n != 1 {
			t.Errorf("10 hand-overs cost %d requests", n)
		}
		_, next := testlock.Lock(t, m, bg)
		testlock.WantAfter(t, next, last)
		testlock.Unlock(t, next)
	})
}

func TestUnusedTokensAreGivenBack(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		var last int64
		for range 3 {
			_, hold := testlock.Lock(t, m, bg)
			got := queueUp(m, 3, bg)
			time.Sleep(time.Second)
			testlock.Unlock(t, hold)
			for range 3 {
				h := <-got
				last = h.Hold.Token()
				testlock.Unlock(t, h.Hold)
			}
		}
		if st := testlock.Inspect(t, m); st.Token != last {
			t.Errorf("Redis remembers token %d, the last one used was %d", st.Token, last)
		}
	})
}

// Proves: tokens
func TestATurnEndsWithItsTokens(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		_, hold := testlock.Lock(t, m, bg)
		got := queueUp(m, 2100, bg)
		time.Sleep(time.Second)
		count := calls(w.Client)
		last := hold.Token()
		testlock.Unlock(t, hold)
		for i := range 2100 {
			h := <-got
			if h.Err != nil || h.who != i || h.Hold.Token() <= last {
				t.Fatalf("number %d after token %d: %+v, %d", i, last, h, h.Hold.Token())
			}
			last = h.Hold.Token()
			testlock.Unlock(t, h.Hold)
		}
		if n := count.Load(); n < 3 || n > 12 {
			t.Errorf("2100 hand-overs with 1000 tokens to a grant cost %d requests", n)
		}
	})
}

// Proves: order
func TestATurnIsBounded(t *testing.T) {
	for turn, want := range map[time.Duration]int{0: 21, 25 * time.Millisecond: 8} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			m := rlock.New(testlock.NewSession(t, w.Client, rlock.WithHandover(turn)), "x")
			_, hold := testlock.Lock(t, m, bg)
			got := queueUp(m, 10, bg)
			w.Net.Reset()
			testlock.Unlock(t, hold)
			for range 10 {
				h := <-got
				time.Sleep(10 * time.Millisecond) // a turn of 25 ms has room for two such holds
				testlock.Unlock(t, h.Hold)
			}
			// One request is for the first Unlock, and two for each grant.
			scripts := sequence(w.Net)
			n := strings.Count(scripts, "acquire") + strings.Count(scripts, "release")
			if n < want-2 || n > want+2 {
				t.Errorf("a turn of %v: %d requests for 10 holds of 10 ms, want about %d", turn, n, want)
			}
		})
	}
}

func TestWhoeverIsInLineWhenTheLeaseIsLostAsksAnew(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		_, first := testlock.Lock(t, m, bg)
		got := queueUp(m, 3, bg)
		time.Sleep(time.Second)
		testlock.Unlock(t, first)
		h := <-got
		testlock.ForceUnlock(t, m)
		unlocked := h.Hold.Token()
		testlock.Unlock(t, h.Hold) // handed over in memory, so it does not notice the loss
		h = <-got
		<-h.Ctx.Done() // the next renewal finds the loss
		testlock.WantError(t, "the holder of a turn that was lost", context.Cause(h.Ctx), rlock.ErrLost)
		last := h.Hold.Token()
		if last <= unlocked {
			t.Errorf("token %d after %d", last, unlocked)
		}
		testlock.WantError(t, "Unlock", h.Hold.Unlock(bg), rlock.ErrLost)
		h = <-got
		if h.Err != nil || h.Hold.Token() <= last {
			t.Errorf("who was in line: %+v", h)
		}
		testlock.Unlock(t, h.Hold)
	})
}

// The error must not say that another session or this session has the lock, because it may be free by then.
func TestOneThatWaitsBelowAHoldThatIsLostLearnsThat(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		held, hold := testlock.Lock(t, m, bg)
		for range 20 { // the ends of context and hold come in any order
			_, inner := testlock.Lock(t, m, held)
			got := queueUp(m, 1, held)
			testlock.ForceUnlock(t, m)
			testlock.WantError(t, "Extend", hold.Extend(bg, time.Second), rlock.ErrLost)
			h := <-got
			var locked *rlock.LockedError
			testlock.WantError(t, "the Lock below it", h.Err, rlock.ErrLost)
			if errors.As(h.Err, &locked) || errors.Is(h.Err, context.Canceled) {
				t.Fatalf("got %v", h.Err)
			}
			testlock.WantError(t, "Unlock", inner.Unlock(bg), rlock.ErrLost)
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			held, hold = testlock.Lock(t, m, bg)
		}
		testlock.Unlock(t, hold)
	})
}

// When the first waiter leaves, the session gives up its place in the queue, because the second waiter wants
// another lease. The second waiter's error must say that the lock is taken.
func TestOneWhosePlaceIsGivenUpKnowsThatTheLockIsTaken(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		mine := testlock.NewSession(t, w.Client)
		fixed := rlock.WithLease(20 * time.Second) // a hold with a fixed lease is not passed on
		_, hold := testlock.Lock(t, rlock.New(mine, "x"), bg, fixed)
		var others []<-chan handed // the second one learns who has the lock; mine does not
		for range 2 {
			others = append(others, queueUp(rlock.New(testlock.NewSession(t, w.Client), "x"), 1, bg))
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithCancel(bg)
		first := queueUp(rlock.New(mine, "x"), 1, ctx)
		time.Sleep(time.Second)
		testlock.Unlock(t, hold)
		next := <-others[0]
		time.Sleep(time.Second)
		second := queueUp(rlock.New(mine, "x"), 1, bg,
			rlock.WithLease(8*time.Second), rlock.WaitAtMost(time.Second))
		time.Sleep(500 * time.Millisecond)
		w.Down(true) // before the second waiter gets a reply
		cancel()
		testlock.WantError(t, "the first", (<-first).Err, context.Canceled)
		testlock.WantError(t, "the second", (<-second).Err, rlock.ErrLocked)
		w.Down(false)
		testlock.Unlock(t, next.Hold)
		testlock.Unlock(t, (<-others[1]).Hold)
	})
}

// Proves: notice
func TestNobodyInLineBelievesLongerThanRedisWhenRedisFallsSilent(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		_, first := testlock.Lock(t, m, bg)
		got := queueUp(m, 20, bg)
		time.Sleep(time.Second)
		testlock.Unlock(t, first)
		h := <-got
		time.Sleep(2 * time.Second) // until the first lease is renewed to a whole lease
		granted := time.Now()
		w.Down(true)
		n := 1
		for ; h.Ctx.Err() == nil && time.Since(granted) < time.Minute; n++ {
			time.Sleep(3 * time.Second)
			if h.Hold.Err() == nil && time.Since(granted) > 30*time.Second {
				t.Fatalf("held %v after the last answer", time.Since(granted))
			}
			if h.Hold.Unlock(bg) != nil {
				break
			}
			select {
			case h = <-got:
			case <-time.After(time.Minute):
			}
		}
		if n < 2 {
			t.Error("it was not handed over at all")
		}
		w.Down(false)
		for ; n < 20; n++ {
			if h = <-got; h.Err == nil { // calls without a place in the queue fail in an outage
				testlock.Unlock(t, h.Hold)
			}
		}
	})
}

func TestReentryUnderAHandOverTellsRedisOfTheTurn(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *testlock.Wire, s *rlock.Session, newMutex testlock.Maker) {
		m := newMutex(s, "x")
		ctx, first := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		got := queueUp(m, 2, bg)
		time.Sleep(time.Second)
		testlock.Unlock(t, nested)
		testlock.Unlock(t, first)
		testlock.Unlock(t, (<-got).Hold)
		h := <-got
		_, nested = testlock.Lock(t, m, h.Ctx)
		if st := testlock.Inspect(t, m); st.Count != 2 || nested.Token() != h.Hold.Token() {
			t.Errorf("re-entry under a hand-over: %+v, tokens %d and %d", st, nested.Token(), h.Hold.Token())
		}
		testlock.Unlock(t, nested)
		if st := testlock.Inspect(t, m); st.Count != 1 {
			t.Errorf("after the nested Unlock: %+v", st)
		}
		testlock.Unlock(t, h.Hold)
		if st := testlock.Inspect(t, m); st.Held {
			t.Errorf("in the end: %+v", st)
		}
	})
}

func TestObserversHearOfHandOvers(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var rec recorder
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithHandover(time.Minute),
			rlock.WithObserver(&rec)), "x")
		_, first := testlock.Lock(t, m, bg)
		got := queueUp(m, 3, bg)
		time.Sleep(time.Second)
		testlock.Unlock(t, first)
		var tokens []int64
		for range 3 {
			h := <-got
			tokens = append(tokens, h.Hold.Token())
			time.Sleep(time.Second)
			testlock.Unlock(t, h.Hold)
		}
		time.Sleep(time.Second)
		var acquired, released []int64
		inMemory := 0
		for _, e := range rec.events {
			switch {
			case e.Type == rlock.EventAcquired:
				acquired = append(acquired, e.Token)
			case e.Type == rlock.EventReleased:
				released = append(released, e.Token)
				if e.Token != first.Token() && e.Held != time.Second {
					t.Errorf("held for %v", e.Held)
				}
			}
			if e.HandedOver {
				inMemory++
			}
		}
		all := append([]int64{first.Token()}, tokens...)
		if !slices.Equal(acquired, all) || !slices.Equal(released, all) || inMemory < 2 {
			t.Errorf("tokens %v: acquired %v, %d of them handed over, released %v",
				all, acquired, inMemory, released)
		}
	})
}

// Sessions that have had their turn wait behind the others, so an Unlock causes few requests.
// Proves: order
func TestProcessesThatTakeTurnsDoNotAllAskAtEachUnlock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const sessions, turns = 8, 25
		var wg sync.WaitGroup
		w.Net.SetDelay(20 * time.Microsecond)
		var cycles, most atomic.Int64
		for range sessions {
			m := rlock.New(testlock.NewSession(t, w.Client), "x")
			wg.Go(func() {
				mine := 0
				for cycles.Load() < sessions*turns {
					_, hold := testlock.Lock(t, m, bg)
					cycles.Add(1)
					mine++
					time.Sleep(300 * time.Microsecond)
					testlock.Unlock(t, hold)
					time.Sleep(10 * time.Microsecond)
				}
				n := most.Load()
				for int64(mine) > n && !most.CompareAndSwap(n, int64(mine)) {
					n = most.Load()
				}
			})
		}
		wg.Wait()
		each := float64(w.Net.Count()) / float64(cycles.Load())
		t.Logf("%.1f requests for each of %d cycles; one session had %d", each, cycles.Load(), most.Load())
		if each > 4 { // two at least; about nine if all waiters woke
			t.Errorf("%.1f requests for each cycle", each)
		}
		if most.Load() > 2*turns {
			t.Errorf("one session had %d of %d turns", most.Load(), cycles.Load())
		}
	})
}

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

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// Handing the lock over inside a process.

// calls counts the scripts that a client sends.
type calls struct{ n atomic.Int64 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// handed is who got the lock.
type handed struct {
	who  int
	ctx  context.Context
	hold *rlock.Hold
	err  error
}

// queueUp has n goroutines ask for the lock one after the other.
func queueUp(m *rlock.Mutex, n int, ctx context.Context, options ...rlock.Option) <-chan handed {
	got := make(chan handed, n)
	for i := range n {
		go func() {
			ctx, hold, err := m.Lock(ctx, options...)
			got <- handed{i, ctx, hold, err}
		}()
		synctest.Wait()
	}
	return got
}

// everyKindSimulated runs a test in fake time for each kind, on a session that hands over for a minute.
func everyKindSimulated(t *testing.T, test func(t *testing.T, w *wire, s *rlock.Session, newMutex maker)) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		test(t, w, newSession(t, w.rdb, rlock.WithStreak(time.Minute)), newMutex)
	})
}

func TestAHandOverInsideASessionCostsNoRequest(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		id := identity(t, s, newMutex)
		m := newMutex(s, "x")
		_, warm := lock(t, m, bg)
		unlock(t, warm)
		_, hold := lock(t, m, bg)
		got := queueUp(m, 10, bg)
		time.Sleep(time.Second) // those who queue in Redis have asked, too
		inspect(t, m)           // the script is known
		var count calls
		w.rdb.AddHook(&count)
		last := hold.Token()
		unlock(t, hold)
		for i := range 10 {
			h := <-got
			if h.err != nil || h.who != i || h.hold.Token() <= last || h.hold.Err() != nil || h.ctx.Err() != nil {
				t.Fatalf("number %d: %+v", i, h)
			}
			if i > 0 && h.hold.Token() != last+1 {
				t.Errorf("number %d has token %d after %d", i, h.hold.Token(), last)
			}
			last = h.hold.Token()
			if st := inspect(t, m); !st.Held || st.Session != id {
				t.Errorf("Redis does not know that the session holds it: %+v", st)
			}
			unlock(t, h.hold)
		}
		// Ten times to inspect; for those who queue in Redis the first Unlock is a hand-over there; and the last Unlock.
		n := count.n.Load() - 10
		if fair := strings.HasSuffix(t.Name(), "fair"); fair && n != 2 || !fair && n != 1 {
			t.Errorf("10 hand-overs cost %d requests", n)
		}
		_, next := lock(t, m, bg)
		if next.Token() <= last {
			t.Errorf("token %d after %d", next.Token(), last)
		}
		unlock(t, next)
	})
}

func TestUnusedTokensAreGivenBack(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		var last int64
		for range 3 {
			_, hold := lock(t, m, bg)
			got := queueUp(m, 3, bg)
			time.Sleep(time.Second)
			unlock(t, hold)
			for range 3 {
				h := <-got
				last = h.hold.Token()
				unlock(t, h.hold)
			}
		}
		if st := inspect(t, m); st.Token != last {
			t.Errorf("Redis remembers token %d, the last one used was %d", st.Token, last)
		}
	})
}

func TestAStreakEndsWithItsTokens(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, hold := lock(t, m, bg)
		got := queueUp(m, 2100, bg)
		time.Sleep(time.Second)
		var count calls
		w.rdb.AddHook(&count)
		last := hold.Token()
		unlock(t, hold)
		for i := range 2100 {
			h := <-got
			if h.err != nil || h.who != i || h.hold.Token() <= last {
				t.Fatalf("number %d after token %d: %+v, %d", i, last, h, h.hold.Token())
			}
			last = h.hold.Token()
			unlock(t, h.hold)
		}
		if n := count.n.Load(); n < 3 || n > 12 {
			t.Errorf("2100 hand-overs with 1000 tokens to a grant cost %d requests", n)
		}
	})
}

func TestAStreakIsBounded(t *testing.T) {
	for streak, want := range map[time.Duration]int64{0: 20, 25 * time.Millisecond: 8} {
		simulated(t, func(t *testing.T, w *wire) {
			m := rlock.New(newSession(t, w.rdb, rlock.WithStreak(streak)), "x")
			_, hold := lock(t, m, bg)
			got := queueUp(m, 10, bg)
			var count calls
			w.rdb.AddHook(&count)
			unlock(t, hold)
			for range 10 {
				h := <-got
				time.Sleep(10 * time.Millisecond) // longer than two of these is a streak of 25 ms
				unlock(t, h.hold)
			}
			// The first Unlock, and two requests for each grant but for the last ones.
			if n := count.n.Load(); n < want-2 || n > want+2 {
				t.Errorf("a streak of %v: %d requests for 10 holds of 10 ms, want about %d", streak, n, want)
			}
		})
	}
}

func TestWhoeverIsInLineWhenTheLeaseIsLostAsksAnew(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		got := queueUp(m, 3, bg)
		time.Sleep(time.Second)
		unlock(t, first)
		h := <-got
		if _, err := m.ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		unlocked := h.hold.Token()
		unlock(t, h.hold) // handed over in memory: it cannot know
		h = <-got
		<-h.ctx.Done() // at the next renewal
		if !errors.Is(context.Cause(h.ctx), rlock.ErrLost) {
			t.Errorf("the holder of a streak that was lost: %v", context.Cause(h.ctx))
		}
		last := h.hold.Token()
		if last <= unlocked {
			t.Errorf("token %d after %d", last, unlocked)
		}
		if err := h.hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		h = <-got
		if h.err != nil || h.hold.Token() <= last {
			t.Errorf("who was in line: %+v", h)
		}
		unlock(t, h.hold)
	})
}

func TestNobodyInLineBelievesLongerThanRedisWhenRedisFallsSilent(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		got := queueUp(m, 20, bg)
		time.Sleep(time.Second)
		granted := time.Now()
		unlock(t, first)
		h := <-got
		w.down.Store(true)
		n := 1
		for ; h.ctx.Err() == nil && time.Since(granted) < time.Minute; n++ {
			time.Sleep(3 * time.Second)
			if h.hold.Err() == nil && time.Since(granted) > 30*time.Second {
				t.Fatalf("held %v after the last answer", time.Since(granted))
			}
			if h.hold.Unlock(bg) != nil {
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
		w.down.Store(false)
		for ; n < 20; n++ {
			if h = <-got; h.err == nil { // newcomers fail in an outage
				unlock(t, h.hold)
			}
		}
	})
}

func TestAFixedLeaseIsAGrantOfItsOwn(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		fixed := queueUp(m, 1, bg, rlock.WithLease(time.Hour))
		time.Sleep(time.Second)
		next := queueUp(m, 1, bg)
		time.Sleep(time.Second)
		unlock(t, first)
		h := <-fixed
		time.Sleep(time.Second)
		if st := inspect(t, m); st.Remaining < 59*time.Minute {
			t.Errorf("a fixed lease of an hour: %v", st.Remaining)
		}
		unlock(t, h.hold)
		h = <-next
		time.Sleep(time.Second)
		if st := inspect(t, m); st.Remaining > 30*time.Second || h.hold.Err() != nil {
			t.Errorf("the next one has the lease of the one before it: %v", st.Remaining)
		}
		unlock(t, h.hold)
	})
}

func TestALengthenedLeaseIsNotHandedOn(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb, rlock.WithStreak(time.Minute)), "x")
		_, first := lock(t, m, bg)
		got := queueUp(m, 1, bg)
		if err := first.Extend(bg, time.Hour); err != nil {
			t.Fatal(err)
		}
		unlock(t, first)
		h := <-got
		if st := inspect(t, m); st.Remaining > 30*time.Second {
			t.Errorf("the next one has the lease of the one before it: %v", st.Remaining)
		}
		unlock(t, h.hold)
	})
}

func TestCloseInAStreakGivesTheLockBackAtOnce(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		got := queueUp(m, 10, bg)
		time.Sleep(time.Second)
		unlock(t, first)
		h := <-got
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(h.ctx), rlock.ErrClosed) {
			t.Errorf("the holder: %v", context.Cause(h.ctx))
		}
		for range 9 {
			if h := <-got; !errors.Is(h.err, rlock.ErrClosed) {
				t.Errorf("in line: %+v", h)
			}
		}
		other := newMutex(newSession(t, w.rdb), "x")
		_, hold, err := other.TryLock(bg)
		if err != nil {
			t.Fatalf("the lock is not free after Close: %v", err)
		}
		unlock(t, hold)
	})
}

func TestWhoGivesUpInLineIsPassedOver(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		impatient, cancel := context.WithCancel(bg)
		gone := queueUp(m, 3, impatient)
		got := queueUp(m, 1, bg)
		time.Sleep(time.Second)
		cancel()
		for range 3 {
			if h := <-gone; !errors.Is(h.err, context.Canceled) {
				t.Errorf("canceled: %+v", h)
			}
		}
		unlock(t, first)
		h := <-got
		if h.err != nil {
			t.Fatal(h.err)
		}
		unlock(t, h.hold)
	})
}

func TestGoroutinesOfOneOwnerTakeAHandOverTogether(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		_, first := lock(t, m, bg)
		alone := queueUp(m, 1, bg)
		together := queueUp(m, 3, rlock.WithOwner(bg))
		after := queueUp(m, 1, bg)
		time.Sleep(time.Second)
		unlock(t, first)
		unlock(t, (<-alone).hold)
		var holds []*rlock.Hold
		for range 3 {
			h := <-together
			if h.err != nil {
				t.Fatal(h.err)
			}
			holds = append(holds, h.hold)
		}
		if holds[0].Token() != holds[1].Token() || holds[0].Token() != holds[2].Token() {
			t.Error("goroutines of one owner have different tokens")
		}
		for _, h := range holds {
			select {
			case <-after:
				t.Error("let in beside the owner")
			default:
			}
			unlock(t, h)
		}
		unlock(t, (<-after).hold)
	})
}

func TestReentryUnderAHandOverTellsRedisOfTheStreak(t *testing.T) {
	everyKindSimulated(t, func(t *testing.T, w *wire, s *rlock.Session, newMutex maker) {
		m := newMutex(s, "x")
		ctx, first := lock(t, m, bg)
		_, nested := lock(t, m, ctx)
		got := queueUp(m, 2, bg)
		time.Sleep(time.Second)
		unlock(t, nested)
		unlock(t, first)
		unlock(t, (<-got).hold)
		h := <-got
		_, nested, err := m.Lock(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, m); st.Count != 2 || nested.Token() != h.hold.Token() {
			t.Errorf("re-entry under a hand-over: %+v, tokens %d and %d", st, nested.Token(), h.hold.Token())
		}
		unlock(t, nested)
		if st := inspect(t, m); st.Count != 1 {
			t.Errorf("after the nested Unlock: %+v", st)
		}
		unlock(t, h.hold)
		if st := inspect(t, m); st.Held {
			t.Errorf("in the end: %+v", st)
		}
	})
}

func TestObserversHearOfHandOvers(t *testing.T) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *wire) {
				var rec recorder
				m := newMutex(newSession(t, w.rdb, rlock.WithStreak(time.Minute), rlock.WithObserver(&rec)), "x")
				_, first := lock(t, m, bg)
				got := queueUp(m, 3, bg)
				time.Sleep(time.Second)
				unlock(t, first)
				var tokens []int64
				for range 3 {
					h := <-got
					tokens = append(tokens, h.hold.Token())
					time.Sleep(time.Second)
					unlock(t, h.hold)
				}
				time.Sleep(time.Second)
				var acquired, released []int64
				inMemory := 0
				for _, e := range rec.events {
					switch {
					case e.Kind == rlock.Acquired:
						acquired = append(acquired, e.Token)
					case e.Kind == rlock.Released:
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
					t.Errorf("tokens %v: acquired %v, %d of them handed over, released %v", all, acquired, inMemory, released)
				}
			})
		})
	}
}

func TestAClientInAStreakDoesNotStarveAnother(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	var grants atomic.Int64 // of Redis, to the many
	many := newSession(t, rdb, rlock.WithObserver(observe(func(e rlock.Event) {
		if e.Kind == rlock.Acquired && !e.HandedOver {
			grants.Add(1)
		}
	})))
	lone := rlock.New(newSession(t, rdb), "x")
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{}, 8)
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for m := rlock.New(many, "x"); ; {
				_, hold, err := m.Lock(ctx)
				if err != nil {
					return
				}
				if err := hold.Unlock(bg); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	const rounds = 50
	for range rounds {
		_, hold := lock(t, lone, bounded(t))
		unlock(t, hold)
	}
	n := grants.Load()
	cancel()
	for range 8 {
		<-done
	}
	t.Logf("%d grants to the many for %d to the lone one", n, rounds)
	if n > 4*rounds {
		t.Errorf("%d grants to the many for %d to the lone one", n, rounds)
	}
}

// An unlock wakes all that wait, but those who have had their turn let the others go first.
func TestProcessesThatTakeTurnsDoNotAllAskAtEachUnlock(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		const sessions, turns = 8, 25
		var wg sync.WaitGroup
		w.delay.Store(int64(20 * time.Microsecond))
		var cycles, most atomic.Int64
		for range sessions {
			m := rlock.New(newSession(t, w.rdb), "x")
			wg.Go(func() {
				mine := 0
				for cycles.Load() < sessions*turns {
					_, hold := lock(t, m, bg)
					cycles.Add(1)
					mine++
					time.Sleep(300 * time.Microsecond)
					unlock(t, hold)
					time.Sleep(10 * time.Microsecond)
				}
				for n := most.Load(); int64(mine) > n && !most.CompareAndSwap(n, int64(mine)); n = most.Load() {
				}
			})
		}
		wg.Wait()
		each := float64(w.wrote.Load()) / float64(cycles.Load())
		t.Logf("%.1f requests for each of %d cycles; one session had %d", each, cycles.Load(), most.Load())
		if each > 4 { // two are the least, nine without order
			t.Errorf("%.1f requests for each cycle", each)
		}
		if most.Load() > 2*turns {
			t.Errorf("one session had %d of %d turns", most.Load(), cycles.Load())
		}
	})
}

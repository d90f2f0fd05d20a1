package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/history"
	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// seen is what goroutines saw of one semaphore.
type seen struct {
	start time.Time
	mu    sync.Mutex // guards ops
	ops   []history.Op
}

func (s *seen) add(o history.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Return = int64(time.Since(s.start))
	if o.Kind != history.Acquire {
		o.Call = o.Return
	}
	s.ops = append(s.ops, o)
}

// visitor is a goroutine that uses the semaphore.
type visitor struct {
	*seen
	t    *testing.T
	name string
	sem  *semaphore.Semaphore
	rnd  *rand.Rand
}

// acquire takes n permits, and sometimes does not wait, or not for long. A further one never waits, or all might wait for each other.
func (v visitor) acquire(ctx context.Context, name string, n int, further bool) (context.Context, *rlock.Hold) {
	call := int64(time.Since(v.start))
	try := further || v.rnd.IntN(6) == 0
	var options []rlock.Option
	acquire := v.sem.Acquire
	switch {
	case try:
		acquire = v.sem.TryAcquire
	case v.rnd.IntN(6) == 0:
		options = append(options, rlock.WaitAtMost(time.Duration(1+v.rnd.Int64N(int64(3*time.Millisecond)))))
	}
	ctx, hold, err := acquire(ctx, n, options...)
	switch {
	case err == nil:
		v.add(history.Op{Owner: name, Kind: history.Acquire, Permits: n, Token: hold.Token(), Call: call})
	case !try && options == nil || !errors.Is(err, rlock.ErrLocked) && !errors.Is(err, os.ErrDeadlineExceeded):
		v.t.Errorf("%s: Acquire of %d (try: %v, options: %d): %v", name, n, try, len(options), err)
	}
	return ctx, hold
}

func (v visitor) release(name string, hold *rlock.Hold) {
	if hold == nil {
		return
	}
	time.Sleep(time.Duration(v.rnd.Int64N(int64(300 * time.Microsecond))))
	if err := hold.Err(); err != nil {
		v.t.Errorf("%s: lost: %v", name, err)
	}
	v.add(history.Op{Owner: name, Kind: history.Release, Token: hold.Token()})
	if err := hold.Unlock(bg); err != nil {
		v.t.Errorf("%s: Unlock: %v", name, err)
	}
}

// visit takes some permits, and sometimes a further one, and gives them back in any order.
func (v visitor) visit(permits int) {
	ctx, cancel := context.WithTimeout(bg, testlock.Patience)
	defer cancel()
	ctx, hold := v.acquire(ctx, v.name, 1+v.rnd.IntN(permits), false)
	if hold == nil {
		return
	}
	var further *rlock.Hold
	beside := v.name + "+" // which holds it by itself
	if v.rnd.IntN(3) == 0 {
		_, further = v.acquire(ctx, beside, 1, true)
	}
	if v.rnd.IntN(2) == 0 {
		v.release(v.name, hold)
		v.release(beside, further)
		return
	}
	v.release(beside, further)
	v.release(v.name, hold)
}

// TestRandomHoldsAreThoseOfASemaphore has goroutines of several sessions use one semaphore at random, while requests and replies are lost and
// connections cut, and has a judge find an order in which a semaphore in memory would have let them in. Nothing is left of it.
func TestRandomHoldsAreThoseOfASemaphore(t *testing.T) {
	t.Parallel()
	const permits = 3
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := proxy.Client(t)
	all, lost := 0, 0
	for round := range 9 {
		seed := rand.Uint64()
		proxy.OnRequest(nil)
		var sems []*semaphore.Semaphore
		for range 3 {
			s := testlock.NewSession(t, rdb, rlock.WithBatching(-1), rlock.WithStreak(time.Duration(round%2)*5*time.Millisecond),
				rlock.WithLiveness(time.Hour)) // so that nobody gets by a heartbeat what it was not told of
			sems = append(sems, semaphore.New(s, fmt.Sprint(round), permits))
		}
		for _, s := range sems { // so that the server knows the scripts, and the sessions its clock
			_, hold := acquire(t, s, 1)
			unlock(t, hold)
		}
		replies := func() int { return 0 }
		if round%3 > 0 {
			replies = testlock.Lossy(proxy, rand.New(rand.NewPCG(seed, 0)), func(r *faultproxy.Request) string {
				if !r.Is("EVALSHA", "EVAL") || len(r.Args) < 10 {
					return ""
				}
				return r.Args[1] + r.Args[9] // script and attempt
			})
		}
		s := &seen{start: time.Now()}
		var wg sync.WaitGroup
		for i := range 6 {
			v := visitor{s, t, fmt.Sprint(i), sems[i%3], rand.New(rand.NewPCG(seed, uint64(i+1)))}
			wg.Go(func() {
				for range 15 {
					v.visit(permits)
				}
			})
		}
		wg.Wait()
		lost += replies()
		proxy.OnRequest(nil)
		testlock.Eventually(t, "nothing is left", func() bool {
			st := inspect(t, sems[0])
			return st.Used == 0 && len(st.Holders)+len(st.Queue) == 0
		})
		all += len(s.ops)
		if result := porcupine.CheckOperationsTimeout(history.SemaphoreModel(permits), history.Operations(s.ops), testlock.Patience); result != porcupine.Ok {
			t.Fatalf("seed %d: %v: no semaphore would have let them in so: %+v of %+v", seed, result, history.JudgeSemaphore(history.Holds(s.ops), permits), s.ops)
		}
	}
	t.Logf("%d ops, %d replies lost", all, lost)
	if lost == 0 {
		t.Error("this shows too little")
	}
}

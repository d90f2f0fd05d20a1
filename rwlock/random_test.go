package rwlock_test

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
	"github.com/lockline/lockline/rwlock"
)

// seen is what goroutines saw of one lock.
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

// visitor is a goroutine that uses the lock.
type visitor struct {
	*seen
	t    *testing.T
	name string
	m    *rwlock.RWMutex
	rnd  *rand.Rand
}

// enter locks, and sometimes does not wait, or not for long.
func (v visitor) enter(ctx context.Context, read bool) (context.Context, *rlock.Hold) {
	call := int64(time.Since(v.start))
	var err error
	var hold *rlock.Hold
	var options []rlock.Option
	if v.rnd.IntN(6) == 0 {
		options = append(options, rlock.WaitAtMost(time.Duration(1+v.rnd.Int64N(int64(3*time.Millisecond)))))
	}
	try := v.rnd.IntN(6) == 0
	switch {
	case read && try:
		ctx, hold, err = v.m.TryRLock(ctx)
	case read:
		ctx, hold, err = v.m.RLock(ctx, options...)
	case try:
		ctx, hold, err = v.m.TryLock(ctx)
	default:
		ctx, hold, err = v.m.Lock(ctx, options...)
	}
	switch {
	case err == nil:
		v.add(history.Op{Owner: v.name, Kind: history.Acquire, Read: read, Token: hold.Token(), Call: call})
	case !errors.Is(err, rwlock.ErrUpgrade) && (!try && len(options) == 0 || !errors.Is(err, rlock.ErrLocked) && !errors.Is(err, os.ErrDeadlineExceeded)):
		v.t.Errorf("%s, to read: %v, try: %v, options: %d: %v", v.name, read, try, len(options), err)
	}
	return ctx, hold
}

// visit locks, sometimes more than once, and unlocks in any order.
func (v visitor) visit() {
	type part struct {
		hold *rlock.Hold
		read bool
	}
	var all []part
	read := v.rnd.IntN(3) > 0
	ctx, cancel := context.WithTimeout(bg, testlock.Patience)
	defer cancel()
	for {
		held, hold := v.enter(ctx, read)
		if hold == nil {
			break
		}
		all = append(all, part{hold, read})
		if len(all) == 4 || v.rnd.IntN(2) == 0 {
			break
		}
		ctx, read = held, v.rnd.IntN(2) == 0
	}
	for _, i := range v.rnd.Perm(len(all)) {
		time.Sleep(time.Duration(v.rnd.Int64N(int64(300 * time.Microsecond))))
		p := all[i]
		if err := p.hold.Err(); err != nil {
			v.t.Errorf("%s: lost: %v", v.name, err)
		}
		v.add(history.Op{Owner: v.name, Kind: history.Release, Read: p.read, Token: p.hold.Token()})
		if err := p.hold.Unlock(bg); err != nil {
			v.t.Errorf("%s: Unlock: %v", v.name, err)
		}
	}
}

// TestRandomHoldsAreThoseOfAReadWriteLock has goroutines of several sessions use one lock at random, while requests and replies are lost and
// connections cut, and has a judge find an order in which a lock in memory would have let them in. Nothing is left of it.
func TestRandomHoldsAreThoseOfAReadWriteLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := proxy.Client(t)
	all, lost, downgrades := 0, 0, 0
	for round := range 9 {
		seed := rand.Uint64()
		proxy.OnRequest(nil)
		var locks []*rwlock.RWMutex
		for range 3 {
			s := testlock.NewSession(t, rdb, rlock.WithBatching(-1), rlock.WithStreak(time.Duration(round%2)*5*time.Millisecond),
				rlock.WithLiveness(time.Hour)) // so that nobody gets by a heartbeat what it was not told of
			locks = append(locks, rwlock.New(s, fmt.Sprint(round)))
		}
		for _, l := range locks { // so that the server knows the scripts, and the sessions its clock
			ctx, w := lock(t, bg, l)
			_, r := lock(t, ctx, l.RLocker())
			unlock(t, w, r)
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
			v := visitor{s, t, fmt.Sprint(i), locks[i%3], rand.New(rand.NewPCG(seed, uint64(i+1)))}
			wg.Go(func() {
				for range 15 {
					v.visit()
				}
			})
		}
		wg.Wait()
		lost += replies()
		proxy.OnRequest(nil)
		testlock.Eventually(t, "nothing is left", func() bool {
			st := inspect(t, locks[0])
			return st.Writer == nil && len(st.Readers)+len(st.Queue) == 0
		})
		holds := history.Holds(s.ops)
		for _, h := range holds {
			if h.Downgrade != 0 {
				downgrades++
			}
		}
		all += len(s.ops)
		if result := porcupine.CheckOperationsTimeout(history.ReadWriteModel(), history.Operations(s.ops), testlock.Patience); result != porcupine.Ok {
			t.Fatalf("seed %d: %v: no read-write lock would have let them in so: %+v of %+v", seed, result, history.JudgeReadWrite(holds), s.ops)
		}
	}
	t.Logf("%d ops, %d writers became readers, %d replies lost", all, downgrades, lost)
	if lost == 0 || downgrades == 0 {
		t.Error("this shows too little")
	}
}

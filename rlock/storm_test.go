package rlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A storm is many random calls at the same time for a few names. It checks that no two holds of a name are
// valid at the same time.
type storm struct {
	t    *testing.T
	make testlock.Maker
	mu   sync.Mutex // guards live
	live map[string]map[*rlock.Hold]bool
}

func (w *storm) enter(name string, h *rlock.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live[name] == nil {
		w.live[name] = map[*rlock.Hold]bool{}
	}
	for o := range w.live[name] {
		if o.Token() != h.Token() && o.Err() == nil && h.Err() == nil {
			w.t.Errorf("two holders of %s: tokens %d and %d", name, o.Token(), h.Token())
		}
	}
	w.live[name][h] = true
}

func (w *storm) leave(name string, h *rlock.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live[name], h)
}

// act makes a random acquisition, and perhaps nested ones, and unlocks them in random order.
func (w *storm) act(rnd *rand.Rand, s *rlock.Session, ctx context.Context, depth int) {
	name := string(rune('a' + rnd.IntN(2)))
	m := w.make(s, name)
	micros := func(n int) time.Duration { return time.Duration(rnd.IntN(n)) * time.Microsecond }
	if rnd.IntN(5) == 0 {
		ctx = rlock.WithOwner(ctx)
	}
	var options []rlock.Option
	if rnd.IntN(5) == 0 {
		options = append(options, rlock.WaitAtMost(time.Millisecond+micros(2000)))
	}
	if rnd.IntN(6) == 0 {
		options = append(options, rlock.WithLease(20*time.Millisecond+micros(400_000)))
	}
	short, cancel := ctx, context.CancelFunc(func() {})
	if rnd.IntN(3) > 0 || depth > 0 {
		short, cancel = context.WithTimeout(ctx, micros(4000*(1+10*rnd.IntN(2))))
	}
	defer cancel()
	acquire := m.Lock
	if rnd.IntN(6) == 0 {
		acquire = m.TryLock
	}
	held, h, err := acquire(short, options...)
	if err != nil {
		return
	}
	w.enter(name, h)
	held = context.WithoutCancel(held)
	release := func() {
		w.leave(name, h)
		bound, cancel := bg, context.CancelFunc(func() {})
		if rnd.IntN(2) == 0 {
			bound, cancel = context.WithTimeout(bg, micros(3000))
		}
		_ = h.Unlock(bound)
		cancel()
		if h.Err() == nil {
			w.t.Error("held after Unlock")
		}
		if rnd.IntN(8) == 0 {
			testlock.WantError(w.t, "second Unlock", h.Unlock(bg), rlock.ErrNotHeld)
		}
	}
	var wg sync.WaitGroup
	if depth < 3 {
		for range rnd.IntN(4) {
			r := rand.New(rand.NewPCG(rnd.Uint64(), 1))
			if nested := func() { w.act(r, s, held, depth+1) }; rnd.IntN(2) == 0 {
				wg.Go(nested)
			} else {
				nested()
			}
		}
	}
	if rnd.IntN(2) == 0 {
		release()
		wg.Wait()
	} else {
		wg.Wait()
		release()
	}
}

// blow runs a storm in one session for each client. Afterward, each session must be able to lock each name.
func blow(t *testing.T, newMutex testlock.Maker, goroutines, acts int, clients []*redis.Client, calm func()) {
	w := &storm{t: t, make: newMutex, live: map[string]map[*rlock.Hold]bool{}}
	var sessions []*rlock.Session
	for i, c := range clients {
		sessions = append(sessions, testlock.Batching( // the first session shares pipelines
			testlock.NewSession(t, c, rlock.WithWatchdogTimeout(500*time.Millisecond),
				rlock.WithWaiterTimeout(500*time.Millisecond)),
			100*i))
	}
	ctx, cancel := context.WithTimeout(bg, 2*testlock.Patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range goroutines {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range acts {
				w.act(rnd, sessions[i%len(sessions)], ctx, 0)
			}
		})
	}
	wg.Wait()
	calm()
	for _, s := range sessions {
		for _, name := range []string{"a", "b"} {
			_, h, err := newMutex(s, name).Lock(testlock.Bounded(t))
			if err != nil {
				t.Fatalf("%s is dead: %v", name, err)
			}
			testlock.Unlock(t, h)
		}
		testlock.Must(t, s.Close())
	}
}

// breaking makes networks lose, delay and cut random requests until calm is called. Then calm lets the
// delayed requests arrive.
func breaking(proxies ...*faultproxy.Proxy) (calm func()) {
	var mu sync.Mutex // guards rnd
	rnd := rand.New(rand.NewPCG(9, 10))
	for _, p := range proxies {
		p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			mu.Lock()
			defer mu.Unlock()
			actions := []faultproxy.Action{faultproxy.DropAndCut, faultproxy.CutReply,
				faultproxy.SwallowReply, faultproxy.Hold}
			if i := rnd.IntN(60); i < len(actions) && r.Script() != "" {
				return actions[i]
			}
			return faultproxy.Pass
		})
	}
	return func() {
		for _, p := range proxies {
			p.OnRequest(nil)
			for _, r := range p.Held() {
				_ = p.Release(r)
			}
		}
	}
}

// Proves: wake-ups
func TestAStormOnABrokenNetworkLeavesEveryNameAlive(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		other := faultproxy.InMemory(t, w.Dial)
		for _, p := range []*faultproxy.Proxy{w.Net, other} {
			p.SetDelay(100 * time.Microsecond)
		}
		clients := []*redis.Client{w.Client, other.Client(t, testlock.Impatient)}
		blow(t, newMutex, 8, 20, clients, breaking(w.Net, other))
		testlock.OnlyTokens(t, w.Client)
	})
}

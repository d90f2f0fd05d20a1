package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// pipelines counts the pipelines of a client, and the commands that it sends without a pipeline.
type pipelines struct {
	n, commands, longest, alone atomic.Int64
	before                      func() // called before each pipeline
	refuse                      atomic.Bool
}

var errOpen = errors.New("circuit open")

// count counts the requests of rdb from now on.
func (p *pipelines) count(rdb *redis.Client) {
	rdb.AddHook(testlock.Hook{Command: p.one, Pipeline: p.many})
}

func (p *pipelines) one(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if strings.HasPrefix(cmd.Name(), "eval") {
		p.alone.Add(1)
	}
	return next(ctx, cmd)
}

func (p *pipelines) many(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	if name := cmds[0].Name(); strings.HasPrefix(name, "eval") { // not the commands that set up a connection
		n := int64(len(cmds))
		p.n.Add(1)
		p.commands.Add(n)
		most := p.longest.Load()
		for n > most && !p.longest.CompareAndSwap(most, n) {
			most = p.longest.Load()
		}
		if p.before != nil {
			p.before()
		}
		if p.refuse.Load() {
			return errOpen
		}
	}
	return next(ctx, cmds)
}

// oneProcessor makes goroutines run one after another, so that many of them send requests at about the same
// time.
func oneProcessor(t *testing.T) {
	n := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(n) })
}

// lockEach starts n goroutines. Each locks and unlocks its own lock, as many times as times says.
func lockEach(t *testing.T, s *rlock.Session, newMutex testlock.Maker, n, times int, ctx context.Context) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			m := newMutex(s, fmt.Sprint("own", i))
			last := int64(0)
			for range times {
				_, h, err := m.Lock(ctx)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				testlock.WantAfter(t, h, last)
				last = h.Token()
				if err := h.Unlock(ctx); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestManyRequestsSharePipelinesAndFewDoNot(t *testing.T) {
	oneProcessor(t)
	const times = 3
	for kind, newMutex := range testlock.Kinds {
		for _, c := range []struct {
			what       string
			goroutines int
			shared     bool
		}{
			{"many", 40, true},
			{"few", 16, false},
		} {
			t.Run(kind+"/"+c.what, func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					w.Net.SetDelay(time.Millisecond)
					var p pipelines
					p.count(w.Client)
					ctx, cancel := context.WithCancel(bg)
					defer cancel()
					lockEach(t, testlock.NewSession(t, w.Client), newMutex, c.goroutines, times, ctx)
					requests, shared := p.commands.Load()+p.alone.Load(), p.commands.Load()
					if c.shared != (shared > 0) || c.shared && 2*shared < requests {
						t.Errorf("%d of %d requests were in pipelines", shared, requests)
					}
					if p.longest.Load() > 100 {
						t.Errorf("%d requests in one pipeline", p.longest.Load())
					}
				})
			})
		}
	}
}

// Proves: repeats
func TestAPipelineWhoseAnswersAreLostChangesNothingTwice(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var n, cuts atomic.Int64
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Script() == "" {
				return faultproxy.Pass
			}
			switch n := n.Add(1); {
			case n%31 == 0 && cuts.Add(-1) >= 0:
				return faultproxy.CutReply
			case n%23 == 0 && cuts.Add(-1) >= 0:
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		var p pipelines
		rdb := w.Client
		p.count(rdb)
		s := testlock.Batching(testlock.NewSession(t, rdb), 0)
		for range 3 {
			cuts.Store(3) // fewer than the four copies of one request, all of which could be cut
			lockEach(t, s, newMutex, 32, 4, testlock.Bounded(t))
		}
		if p.n.Load() == 0 {
			t.Error("there were no pipelines")
		}
	})
}

func TestWhoSharesAPipelineIsFreeToLeaveIt(t *testing.T) {
	oneProcessor(t)
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		rdb, p := w.Client, pipelines{}
		p.count(rdb)
		s := testlock.Batching(testlock.NewSession(t, rdb), 0)
		lockEach(t, s, newMutex, 1, 1, bg)
		w.Net.Freeze()
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				_, _, err := newMutex(s, fmt.Sprint("frozen", i)).Lock(ctx)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		testlock.Eventually(t, "most are in pipelines", func() bool { return p.commands.Load() > 20 })
		cancel()
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		testlock.Receive(t, "all have left", done)
		w.Net.Thaw()
		for i := range 30 { // grants to callers that have left must be released
			testlock.Works(t, newMutex(s, fmt.Sprint("frozen", i)))
		}
	})
}

func TestAnUnlockWaitsForNoPipelineThatIsUnderWay(t *testing.T) {
	oneProcessor(t)
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Script() != "" && strings.Contains(fmt.Sprint(r.Args), "stuck") {
				return faultproxy.Swallow
			}
			return faultproxy.Pass
		})
		rdb := w.Net.Client(t)
		var p pipelines
		p.count(rdb)
		s := testlock.Batching(testlock.NewSession(t, rdb), 0)
		_, hold := testlock.Lock(t, newMutex(s, "free"), bg)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				_, _, err := newMutex(s, fmt.Sprint("stuck", i)).Lock(ctx)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		settle()
		if n := p.commands.Load(); n < 20 {
			t.Errorf("%d of 30 requests are in pipelines", n)
		}
		began := time.Now()
		testlock.Unlock(t, hold)
		if took := time.Since(began); took > 0 {
			t.Errorf("an unlock takes %v", took)
		}
		cancel()
		wg.Wait()
		w.Net.OnRequest(nil)
		w.Net.CutAll()
	})
}

func TestAScriptThatIsForgottenIsSentAgainInAPipeline(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var p pipelines
		admin := beside(t, w)
		p.before = func() { admin.ScriptFlush(bg) }
		rdb := w.Client
		p.count(rdb)
		lockEach(t, testlock.Batching(testlock.NewSession(t, rdb), 0), newMutex, 32, 3, testlock.Bounded(t))
		if p.n.Load() == 0 {
			t.Error("there were no pipelines")
		}
	})
}

// Proves: panics
func TestAPanicUnderAPipelineIsAnErrorOnlyOfWhoCausedIt(t *testing.T) {
	oneProcessor(t)
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var shared atomic.Bool
		rdb := w.Client
		rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
			if slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
				return strings.Contains(fmt.Sprint(c.Args()...), "{own7}")
			}) {
				shared.Store(shared.Load() || len(cmds) > 1)
				panic(blown)
			}
			return next()
		}))
		s := testlock.Batching(testlock.NewSession(t, rdb), 0)
		for !shared.Load() && !t.Failed() {
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					_, h, err := newMutex(s, fmt.Sprint("own", i)).Lock(bg)
					switch {
					case i == 7:
						byPanic(t, "Lock", err)
					case err != nil:
						t.Errorf("Lock: %v", err)
					default:
						testlock.Unlock(t, h)
					}
				})
			}
			wg.Wait()
		}
	})
}

// Proves: repeats
func TestAPipelineThatWasNotSentIsNotAnswered(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		rdb, p := w.Client, pipelines{}
		p.count(rdb)
		s := testlock.Batching(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(3*time.Second)), 0)
		var holds []*rlock.Hold
		for i := range 30 {
			_, h := testlock.Lock(t, newMutex(s, fmt.Sprint("own", i)), bg)
			holds = append(holds, h)
		}
		p.refuse.Store(true)
		p.n.Store(0)
		testlock.Eventually(t, "a renewal", func() bool { return p.n.Load() > 0 })
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatalf("after a renewal that was not sent: %v", err)
			}
		}
		n := runtime.GOMAXPROCS(1)
		var wg sync.WaitGroup
		for _, h := range holds {
			wg.Go(func() {
				if err := h.Unlock(bg); err != nil && !errors.Is(err, errOpen) {
					t.Errorf("Unlock: %v", err)
				}
			})
		}
		wg.Wait()
		runtime.GOMAXPROCS(n)
		p.refuse.Store(false)
		testlock.OnlyTokens(t, rdb) // all locks are released
	})
}

// traced hides the type of the client that it wraps.
type traced struct{ redis.UniversalClient }

func TestAClientOfWhoKnowsHowManyServersSharesNoPipeline(t *testing.T) {
	oneProcessor(t)
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var p pipelines
		p.count(w.Client)
		lockEach(t, testlock.Batching(testlock.NewSession(t, traced{w.Client}), 0), rlock.New, 30, 4, bg)
		if n := p.n.Load(); n > 0 {
			t.Errorf("%d pipelines", n)
		}
	})
}

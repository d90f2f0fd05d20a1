package testlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { testlock.Main(m, func(args string) { fmt.Print(args) }) }

var bg = context.Background()

// A judged takes the place of a test in a call that may fail it, and records the failure.
type judged struct {
	*testing.T
	failed, stopped bool
}

func (j *judged) Errorf(string, ...any) { j.failed = true }
func (j *judged) Fatalf(string, ...any) { j.Fatal() }
func (j *judged) Fatal(...any) {
	j.failed, j.stopped = true, true
	runtime.Goexit()
}

// A stage has the objects with which the test calls the helpers.
type stage struct {
	w          *testlock.Wire
	free, held *rlock.Mutex    // two locks, of which another session holds the second
	hold       *rlock.Hold     // the hold of that session
	over       context.Context // a context that has ended
	never      chan int        // a channel on which nothing comes
}

func TestHelpersFailTheTestWhereTheySaySo(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		stops     bool
		good, bad func(t testing.TB, s *stage)
	}{
		"NewSession": {true,
			func(t testing.TB, s *stage) { testlock.NewSession(t, s.w.Client) },
			func(t testing.TB, s *stage) { testlock.NewSession(t, s.w.Client, rlock.WithPrefix("")) }},
		"Lock": {true,
			func(t testing.TB, s *stage) { testlock.Lock(t, s.free, bg) },
			func(t testing.TB, s *stage) { testlock.Lock(t, s.free, s.over) }},
		"TryLock": {true,
			func(t testing.TB, s *stage) { testlock.TryLock(t, s.free, bg) },
			func(t testing.TB, s *stage) { testlock.TryLock(t, s.held, bg) }},
		"Take": {true,
			func(t testing.TB, s *stage) { testlock.Take(t, s.free) },
			func(t testing.TB, s *stage) { testlock.Take(t, s.held) }},
		"Unlock": {true,
			func(t testing.TB, s *stage) { testlock.Unlock(t, s.hold) },
			func(t testing.TB, s *stage) { testlock.Unlock(t, (*rlock.Hold)(nil)) }},
		"Works": {true,
			func(t testing.TB, s *stage) { testlock.Works(t, s.free); testlock.Works(t, s.free) },
			func(t testing.TB, s *stage) { testlock.Works(t, s.held) }},
		"Warm": {true,
			func(t testing.TB, s *stage) { testlock.Works(t, testlock.Warm(t, s.free)) },
			func(t testing.TB, s *stage) { s.w.SetError("LOADING"); testlock.Warm(t, s.free) }},
		"Inspect": {true,
			func(t testing.TB, s *stage) { testlock.Inspect(t, s.free) },
			func(t testing.TB, s *stage) { testlock.Inspect(t, (*rlock.Mutex)(nil)) }},
		"ForceUnlock": {true,
			func(t testing.TB, s *stage) { testlock.ForceUnlock(t, s.held) },
			func(t testing.TB, s *stage) { testlock.ForceUnlock(t, s.free) }},
		"Granted": {true,
			func(t testing.TB, s *stage) { testlock.Unlock(t, testlock.Granted(t, testlock.Go(bg, s.free))) },
			func(t testing.TB, s *stage) { testlock.Granted(t, testlock.Go(s.over, s.free)) }},
		"Waiting": {false,
			func(t testing.TB, s *stage) {
				ctx, cancel := context.WithCancel(bg)
				waits := testlock.Join(ctx, s.held)
				testlock.Waiting(t, "one that waits", waits)
				cancel()
				testlock.WantError(t, "Lock", (<-waits).Err, context.Canceled)
			},
			func(t testing.TB, s *stage) {
				testlock.Waiting(t, "one that gave up", testlock.Join(s.over, s.free))
			}},
		"Served": {true,
			func(t testing.TB, s *stage) {
				testlock.Served(t, testlock.Go(bg, s.free))
				testlock.Unlock(t, s.hold)
			},
			func(t testing.TB, s *stage) { testlock.Served(t, testlock.Go(s.over, s.free)) }},
		"Must": {true,
			func(t testing.TB, _ *stage) { testlock.Must(t, nil) },
			func(t testing.TB, _ *stage) { testlock.Must(t, boom) }},
		"WantError": {false,
			func(t testing.TB, _ *stage) {
				testlock.WantError(t, "it", fmt.Errorf("wrapped: %w", boom), boom)
			},
			func(t testing.TB, _ *stage) { testlock.WantError(t, "it", nil, boom) }},
		"WantAfter": {false,
			func(t testing.TB, s *stage) { testlock.WantAfter(t, s.hold, s.hold.Token()-1) },
			func(t testing.TB, s *stage) { testlock.WantAfter(t, s.hold, s.hold.Token()) }},
		"Eventually": {true,
			func(t testing.TB, _ *stage) {
				late := time.Now().Add(testlock.Patience - time.Second)
				testlock.Eventually(t, "late", func() bool { return time.Now().After(late) })
			},
			func(t testing.TB, _ *stage) { testlock.Eventually(t, "never", func() bool { return false }) }},
		"Receive": {true,
			func(t testing.TB, s *stage) {
				testlock.Receive(t, "the end", s.over.Done())
				testlock.Receive(t, "late", time.After(testlock.Patience-time.Second))
			},
			func(t testing.TB, s *stage) { testlock.Receive(t, "never", s.never) }},
		"Renewed": {true,
			func(t testing.TB, s *stage) { testlock.Renewed(t, s.hold, 0) },
			func(t testing.TB, s *stage) { s.w.FlushAll(); testlock.Renewed(t, s.hold, 0) }},
		"OnlyTokens": {true,
			func(t testing.TB, s *stage) { testlock.Unlock(t, s.hold); testlock.OnlyTokens(t, s.w.Client) },
			func(t testing.TB, s *stage) { testlock.OnlyTokens(t, s.w.Client) }},
		"NoSubscriptions": {true,
			func(t testing.TB, s *stage) { testlock.NoSubscriptions(t, s.w.Client) },
			func(t testing.TB, s *stage) {
				go testlock.Cycle(testlock.Bounded(t), s.held)
				testlock.Eventually(t, "it listens", func() bool { return len(s.w.PubSubChannels("*")) > 0 })
				testlock.Works(t, s.free)
				testlock.NoSubscriptions(t, s.w.Client)
			}},
	} {
		for what, try := range map[string]func(testing.TB, *stage){"good": c.good, "bad": c.bad} {
			t.Run(name+"/"+what, func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					holder, s := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
					_, hold := testlock.Lock(t, rlock.New(holder, "held"), bg)
					over, end := context.WithCancel(bg)
					end()
					j := &judged{T: t}
					returned, done := false, make(chan struct{})
					go func() {
						defer close(done)
						try(j, &stage{w, rlock.New(s, "free"), rlock.New(s, "held"), hold, over,
							make(chan int)})
						returned = true
					}()
					<-done
					if j.failed != (what == "bad") || j.stopped != (j.failed && c.stops) ||
						returned == j.stopped {
						t.Errorf("failed %v, stopped %v, returned %v", j.failed, j.stopped, returned)
					}
				})
			})
		}
	}
}

func TestAHookIsCalledForCommandsAndPipelines(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		var sent []string
		rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
			sent = append(sent, fmt.Sprint(len(cmds), " ", cmds[len(cmds)-1].Name()))
			return next()
		}))
		rdb.AddHook(testlock.Hook{}) // an empty Hook changes nothing
		testlock.Must(t, rdb.Set(bg, "x", 1, 0).Err())
		_, err := rdb.Pipelined(bg, func(p redis.Pipeliner) error {
			p.Incr(bg, "x")
			p.Incr(bg, "x")
			return nil
		})
		testlock.Must(t, err)
		if n, err := rdb.Get(bg, "x").Int(); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		for _, want := range []string{"1 set", "2 incr", "1 get"} { // other commands open connections
			if !slices.Contains(sent, want) {
				t.Errorf("%q is not among %q", want, sent)
			}
		}
	})
}

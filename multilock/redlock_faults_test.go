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

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Two of five servers are bad, each in its way: the first acquisition costs no more than a time-out, and once they are
// known, a cycle takes as long as before.
func TestTwoBadServersOfFiveSlowNobodyDown(t *testing.T) {
	const timeout, delay = 250 * time.Millisecond, time.Millisecond
	always := func(a faultproxy.Action) func(*testlock.Wire) {
		return func(w *testlock.Wire) { w.Net.OnRequest(func(*faultproxy.Request) faultproxy.Action { return a }) }
	}
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed":          (*testlock.Wire).Kill,
		"frozen":          func(w *testlock.Wire) { w.Net.Freeze() },
		"slow by 2 s":     func(w *testlock.Wire) { w.Net.SetDelay(time.Second) },
		"cut":             always(faultproxy.DropAndCut),
		"cutting replies": always(faultproxy.CutReply),
		"read only":       func(w *testlock.Wire) { w.SetError("READONLY You can't write against a read only replica.") },
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 5, func(t *testing.T, r servers) {
				q, err := multilock.NewQuorum(r.process(t), multilock.WithServerTimeout(timeout))
				testlock.Must(t, err)
				m := testlock.Warm(t, q.New("x"))
				for _, w := range r {
					w.Net.SetDelay(delay)
				}
				cycle := func() time.Duration {
					start := time.Now()
					testlock.Works(t, m)
					return time.Since(start)
				}
				usual := cycle()
				for _, w := range r[:2] {
					spoil(w)
				}
				if first := cycle(); first > timeout+2*usual {
					t.Errorf("the first cycle took %v, where a healthy one takes %v", first, usual)
				}
				for range 6 { // until it is known
					time.Sleep(timeout / 2)
					cycle()
				}
				for range 20 {
					if took := cycle(); took > usual+delay {
						t.Fatalf("a cycle takes %v, a healthy one %v", took, usual)
					}
				}
				for _, w := range r[:2] {
					w.Net.Thaw() // what frozen servers find in their sockets when they go on changes nothing
				}
				if time.Sleep(time.Minute); r.held() > 0 {
					t.Errorf("held by %d in the end", r.held())
				}
			})
		})
	}
}

func TestTheErrorNamesTheServersThatFailAndHow(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[0].Kill()
		r[1].SetError("NOPERM no rights")
		_, _, err := m.TryLock(bg)
		time.Sleep(2 * time.Second) // until go-redis gives up the dial
		_, _, again := m.TryLock(bg)
		for what, err := range map[string]error{r[1].Net.Addr() + ": NOPERM": err, r[0].Net.Addr() + ": ": err, "connection refused": again} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v does not tell of %q", err, what)
			}
		}
	})
}

// It is asked again when it answers.
func TestAServerThatWasSlowVotesAgain(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r[:2] {
			w.Net.Freeze()
		}
		testlock.Works(t, m)
		time.Sleep(time.Second)
		for _, w := range r[:2] {
			w.Net.Thaw()
		}
		testlock.Eventually(t, "asked again", func() bool {
			hold := testlock.Take(t, m)
			defer testlock.Unlock(t, hold)
			return r.unanimous()
		})
	})
}

// A vote that is lost is given back also where its request arrives after everything else.
func TestALateCopyOfALostVoteTakesNothing(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		for _, w := range r[:3] { // three servers are asked and have not received it yet
			w.Net.OnRequest(holds("lock"))
		}
		if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(20 * time.Second) // the release of a request without an answer comes when its time is over
		for _, w := range r[:3] {
			if len(w.Net.Held()) == 0 {
				t.Error("it was not asked")
			}
			for _, q := range w.Net.Held() {
				testlock.Must(t, w.Net.Release(q))
			}
			w.Net.OnRequest(nil)
		}
		if n := r.held(); n > 0 {
			t.Errorf("a late request was granted: %d hold", n)
		}
	})
}

// Three of five have granted, the others have not voted yet, and one of the three dies: four are
// left, and what is asked of them next has a majority as soon as they vote.
func TestWhatFollowsAVoteCountsThoseThatVoteLater(t *testing.T) {
	for name, next := range map[string]func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error{
		"unlock": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error { return hold.Unlock(ctx) },
		"re-entry": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error {
			return testlock.Cycle(ctx, m)
		},
		"extend": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error {
			return hold.Extend(ctx, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 5, func(t *testing.T, r servers) {
				q, err := multilock.NewQuorum(r.process(t), multilock.WithServerTimeout(10*time.Second))
				testlock.Must(t, err)
				m := testlock.Warm(t, q.New("x"))
				synctest.Wait()
				for _, w := range r[3:] {
					w.Net.Freeze()
				}
				ctx, hold := testlock.Lock(t, m, bg)
				r[0].Kill()
				done := make(chan error, 1)
				go func() { done <- next(ctx, m, hold) }()
				synctest.Wait()
				for _, w := range r[3:] {
					w.Net.Thaw()
				}
				testlock.Must(t, <-done)
				_ = hold.Unlock(bg)
			})
		})
	}
}

// panicky is the hook of a client that panics at the commands that it is told to.
type panicky struct {
	at atomic.Pointer[func(redis.Cmder) bool]
}

func (p *panicky) set(at func(redis.Cmder) bool) { p.at.Store(&at) }

func (p *panicky) around(cmds []redis.Cmder, next func() error) error {
	if at := p.at.Load(); at != nil && slices.ContainsFunc(cmds, *at) {
		panic("on purpose")
	}
	return next()
}

// panicking is a process whose clients' hooks may panic.
func (r servers) panicking(t *testing.T) ([]*panicky, *rlock.Mutex) {
	var hooks []*panicky
	var all []*rlock.Session
	for _, w := range r {
		rdb, hook := w.Net.Client(t), new(panicky)
		rdb.AddHook(testlock.Around(hook.around))
		all, hooks = append(all, testlock.NewSession(t, rdb)), append(hooks, hook)
	}
	m := testlock.Warm(t, multilock.NewRedLock("x", all...))
	synctest.Wait()
	return hooks, m
}

func TestAClientThatPanicsIsOneServerThatFails(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hooks, m := r.panicking(t)
		var panics atomic.Int64
		all := func(redis.Cmder) bool { panics.Add(1); return true }
		none := func(redis.Cmder) bool { return false }
		hooks[0].set(all)
		ctx, hold := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		testlock.Unlock(t, hold)
		if synctest.Wait(); panics.Load() == 0 {
			t.Error("the first was not asked")
		}
		hooks[1].set(all)
		if _, _, err := m.Lock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("two of three: %v", err)
		}
		hooks[1].set(none)
		_, hold = testlock.Lock(t, m, bg)
		synctest.Wait()
		hooks[0].set(none)
		hooks[1].set(all)
		if err := hold.Unlock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("Unlock: %v", err)
		}
		hooks[1].set(none)
		testlock.Eventually(t, "free", func() bool { return r.held() == 0 })
	})
}

func TestAProbeThatPanicsEndsNothing(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hooks, m := r.panicking(t)
		var probes atomic.Int64
		hooks[0].set(func(cmd redis.Cmder) bool {
			return cmd.Name() == "ping" && probes.Add(1) == 1
		})
		r[0].Net.Freeze()
		testlock.Eventually(t, "a probe", func() bool { testlock.Works(t, m); time.Sleep(100 * time.Millisecond); return probes.Load() > 0 })
		r[0].Net.Thaw()
		testlock.Eventually(t, "asked again", func() bool {
			hold := testlock.Take(t, m)
			defer testlock.Unlock(t, hold)
			return r.unanimous()
		})
	})
}

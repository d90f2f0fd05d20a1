package multilock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// scripts names the reentrant lock's scripts by what a request carries of them.
var scripts = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	add := func(name string, files ...string) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			sc := wire.NewScript(string(text))
			m[sc.Text()], m[sc.Digest()] = name, name
		}
	}
	add("lock", "../rlock/lock.lua", "../rlock/lock_several.lua")
	add("release", "../rlock/release.lua", "../rlock/release_several.lua")
	add("keep", "../internal/protocol/keep.lua")
	return m
})

func impatient(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout = 200*time.Millisecond, 200*time.Millisecond
}

// namesOf are locks of one session.
func namesOf(s *rlock.Session, n int) (ms []*rlock.Mutex, members []rlock.Locker) {
	for i := range n {
		m := rlock.New(s, fmt.Sprint("m", i))
		ms, members = append(ms, m), append(members, m)
	}
	return ms, members
}

// warm has the server know the scripts and the session know the clock, so that
// from here on every call is one request.
func warm(t testing.TB, l rlock.Locker) {
	t.Helper()
	ctx, hold := lock(t, l, bg)
	_, nested := lock(t, l, ctx)
	unlock(t, nested)
	unlock(t, hold)
}

func TestMembersOnOneServerAreTakenByOneRequest(t *testing.T) {
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	for _, n := range []int{1, 2, 7, 100} {
		_, members := namesOf(newSession(t, proxy.Client(t)), n)
		l := multilock.New(members...)
		warm(t, l)
		proxy.Reset()
		ctx, hold := lock(t, l, bg)
		if proxy.Count() != 1 {
			t.Errorf("%d members: %d requests to lock", n, proxy.Count())
		}
		proxy.Reset()
		unlock(t, hold)
		if proxy.Count() != 1 {
			t.Errorf("%d members: %d requests to unlock", n, proxy.Count())
		}
		_ = ctx
	}
}

func TestOneThatIsTakenCostsOneRequestAndTakesNothing(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	ms, members := namesOf(newSession(t, proxy.Client(t)), 5)
	l := multilock.New(members...)
	warm(t, l)
	for i := range ms {
		_, hold := lock(t, rlock.New(newSession(t, server.Client(t)), ms[i].Name()), bg)
		proxy.Reset()
		_, _, err := l.TryLock(bg)
		var member *multilock.MemberError
		if !errors.As(err, &member) || member.Index != i || !errors.Is(err, rlock.ErrLocked) || proxy.Count() != 1 {
			t.Errorf("%d requests: %v", proxy.Count(), err)
		}
		var locked *rlock.LockedError
		if errors.As(err, &locked) && (locked.Holder == "" || locked.Remaining <= 0 || !strings.Contains(locked.About, "@")) {
			t.Errorf("%+v", locked)
		}
		unlock(t, hold)
	}
}

func TestRepliesThatAreLostLeaveEveryMemberExact(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, members := namesOf(newSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(3*time.Second)), 3)
	ms, _ := namesOf(newSession(t, server.Client(t)), 3)
	l := multilock.New(members...)
	warm(t, l)
	rnd := rand.New(rand.NewPCG(5, 6))
	var mu sync.Mutex // guards rnd, inARow, cut
	inARow, cut := map[string]int{}, 0
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		name := scripts()[r.Script()]
		mu.Lock()
		defer mu.Unlock()
		if name == "" {
			return faultproxy.Pass
		}
		// A request is sent four times at most: the fourth gets through.
		call := name + strings.Join(r.Args[2:5], " ")
		if inARow[call] == 3 || rnd.IntN(2) == 0 {
			inARow[call] = 0
			return faultproxy.Pass
		}
		inARow[call]++
		if rnd.IntN(4) == 0 {
			return faultproxy.DropAndCut
		}
		cut++
		return faultproxy.CutReply
	})
	last := make([]int64, len(ms))
	for range 150 {
		_, hold := lock(t, l, bg)
		for i, m := range ms {
			st, err := m.Inspect(bg)
			must(t, err)
			if token := hold.Parts()[i].Token(); st.Count != 1 || st.Token != token || token <= last[i] {
				t.Fatalf("%+v; token %d after %d", st, token, last[i])
			}
			last[i] = hold.Parts()[i].Token()
		}
		unlock(t, hold)
		if !free(t, ms...) {
			t.Fatal("something is left")
		}
	}
	if cut < 100 {
		t.Errorf("only %d replies were lost", cut)
	}
}

func TestALateCopyOfARequestForSeveralTakesNone(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, members := namesOf(newSession(t, proxy.Client(t, impatient)), 3)
	ms, _ := namesOf(newSession(t, server.Client(t)), 3)
	l := multilock.New(members...)
	warm(t, l)
	for name, then := range map[string]func() *rlock.Hold{
		"granted to the second copy": func() *rlock.Hold { _, h := lock(t, l, bg); return h },
		"canceled": func() *rlock.Hold {
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			defer cancel()
			_, h, err := l.Lock(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return h
		},
	} {
		var n atomic.Int32
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if scripts()[r.Script()] == "lock" && n.Add(1) == 1 {
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
		hold := then()
		eventually(t, "the first copy is under way", func() bool { return len(proxy.Held()) == 1 })
		if hold != nil {
			unlock(t, hold)
		} else {
			// The undoing tells Redis of the copy, once the request's time is over.
			eventually(t, "marked as over", func() bool {
				for _, r := range proxy.Requests() {
					if scripts()[r.Script()] == "release" && r.At.After(proxy.Held()[0].At) {
						return true
					}
				}
				return false
			})
			warm(t, rlock.New(newSession(t, server.Client(t)), "other")) // and it has been answered
		}
		eventually(t, "free", func() bool { return free(t, ms...) })
		must(t, proxy.Release(proxy.Held()[0]))
		if !free(t, ms...) {
			t.Errorf("%s: the late copy took something", name)
		}
		proxy.Reset()
	}
}

func TestACancelAtAnyStepLeavesNothing(t *testing.T) {
	var servers [2]*testredis.Server
	var proxies [2]*faultproxy.Proxy
	for i := range servers {
		servers[i] = testredis.Start(t)
		proxies[i] = faultproxy.New(t, servers[i].Addr)
	}
	direct := [2]*redis.Client{servers[0].Client(t), servers[1].Client(t)}
	here, there := newSession(t, direct[0]), newSession(t, direct[1])
	watch := []*rlock.Mutex{rlock.New(here, "a"), rlock.New(here, "b"), fairlock.New(here, "c"), rlock.New(there, "d"), fairlock.New(there, "e")}
	for name, action := range map[string]faultproxy.Action{
		"arrives": faultproxy.Pass, "is lost": faultproxy.DropAndCut, "is executed": faultproxy.CutReply, "is never answered": faultproxy.SwallowReply,
	} {
		t.Run("the request "+name, func(t *testing.T) {
			waits := make(waitingSignal, 100)
			mine := newSession(t, proxies[0].Client(t, impatient))
			yours := newSession(t, proxies[1].Client(t, impatient), rlock.WithObserver(waits))
			l := multilock.New(rlock.New(mine, "a"), rlock.New(mine, "b"), fairlock.New(mine, "c"), rlock.New(yours, "d"), fairlock.New(yours, "e"))
			for step, through := 1, false; !through; step++ {
				// One is taken, and freed when it is waited for: so there is a second round.
				_, busy := lock(t, watch[4], bg)
				ctx, cancel := context.WithCancel(bg)
				var n atomic.Int32
				freed, done := make(chan error, 1), make(chan struct{})
				go func() {
					select {
					case <-waits:
					case <-done:
					}
					freed <- busy.Unlock(bg)
				}()
				decide := func(r *faultproxy.Request) faultproxy.Action {
					if int(n.Add(1)) != step {
						return faultproxy.Pass
					}
					cancel()
					return action
				}
				for _, p := range proxies {
					p.OnRequest(decide)
				}
				_, hold, err := l.Lock(ctx)
				for _, p := range proxies {
					p.OnRequest(nil)
				}
				if err == nil {
					through = ctx.Err() == nil
					unlock(t, hold)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("step %d: %v", step, err)
					through = true
				}
				cancel()
				close(done)
				must(t, <-freed)
				eventually(t, fmt.Sprintf("step %d: all is free", step), func() bool { return free(t, watch...) })
				if step > 100 {
					t.Fatal("it never gets through")
				}
			}
			must(t, mine.Close())
			must(t, yours.Close())
			for _, rdb := range direct {
				eventually(t, "only memories are left", func() bool {
					for _, key := range rdb.Keys(bg, "*").Val() {
						if !strings.HasSuffix(key, "}:t") {
							return false
						}
					}
					return len(rdb.PubSubChannels(bg, "*").Val()) == 0
				})
			}
		})
	}
}

func TestAKeyOfAnotherTypeIsOfOneMemberOnly(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		ms, members := namesOf(newSession(t, rdb), 5)
		l := multilock.New(members...)
		for i := range ms {
			_, hold := lock(t, l, bg)
			key := fmt.Sprintf("lockline:r:{m%d}", i)
			must(t, rdb.Set(bg, key, "mine", 0).Err())
			var member *multilock.MemberError
			if err := hold.Unlock(bg); !errors.As(err, &member) || member.Index != i || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("Unlock: %v", err)
			}
			_, _, err := l.Lock(bg)
			if !errors.As(err, &member) || member.Index != i || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("Lock: %v", err)
			}
			if !free(t, slices.Delete(slices.Clone(ms), i, i+1)...) {
				t.Error("others are left")
			}
			if rdb.Get(bg, key).Val() != "mine" {
				t.Error("it was overwritten")
			}
			must(t, rdb.Del(bg, key).Err())
		}
	})
}

func TestAGrantThatIsTooLateForSomeIsGivenBackAndAskedForAnew(t *testing.T) {
	const lease = 300 * time.Millisecond
	rdb := testredis.Start(t).Client(t)
	var slow atomic.Int32
	// Whoever is told of the second member's first hold takes too long for the rest.
	watch := observe(func(e rlock.Event) {
		if e.Kind == rlock.Acquired && e.Name == "m1" && slow.Add(1) == 2 {
			<-time.After(lease)
		}
	})
	ms, members := namesOf(newSession(t, rdb, rlock.WithObserver(watch), rlock.WithWatchdogTimeout(lease)), 4)
	l := multilock.New(members...)
	_, hold := lock(t, l, bg)
	tokens := hold.Parts()
	unlock(t, hold)
	_, hold = lock(t, l, bg)
	for i, p := range hold.Parts() {
		if p.Err() != nil || p.Token() <= tokens[i].Token() {
			t.Errorf("%s: %v", p.Name(), p.Err())
		}
	}
	if slow.Load() != 3 {
		t.Errorf("m1 was held %d times", slow.Load())
	}
	unlock(t, hold)
	eventually(t, "all is free", func() bool { return free(t, ms...) })
}

type observe func(rlock.Event)

func (f observe) Observe(_ context.Context, e rlock.Event) { f(e) }

func TestAServerThatDiesInBetweenIsNamedAndTheOthersAreGivenBack(t *testing.T) {
	alive := testredis.Start(t)
	proxy := faultproxy.New(t, alive.Addr)
	dying := testredis.Start(t)
	ms, members := namesOf(newSession(t, proxy.Client(t)), 2)
	l := multilock.New(append(members, rlock.New(newSession(t, dying.Client(t, impatient)), "x"))...)
	warm(t, l)
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if scripts()[r.Script()] == "lock" {
			dying.Kill()
		}
		return faultproxy.Pass
	})
	ctx, hold, err := l.Lock(bg)
	var member *multilock.MemberError
	if !errors.As(err, &member) || member.Index != 2 || member.Name != "x" || errors.Is(err, rlock.ErrLocked) || errors.Is(err, rlock.ErrLost) {
		t.Errorf("%v", err)
	}
	if hold != nil || ctx != bg || !free(t, ms...) {
		t.Error("something is left")
	}
}

func TestAFrozenServerBoundsNoWait(t *testing.T) {
	alive, frozen := testredis.Start(t), testredis.Start(t)
	ms, members := namesOf(newSession(t, alive.Client(t)), 2)
	there := newSession(t, frozen.Client(t, func(o *redis.Options) { o.ReadTimeout = 10 * patience }))
	ms = append(ms, rlock.New(there, "x"), fairlock.New(there, "y"))
	for _, last := range ms[2:] {
		l := multilock.New(append(members, last)...)
		warm(t, l)
		for name, take := range map[string]func() error{
			"deadline": func() error {
				ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
				defer cancel()
				_, _, err := l.Lock(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				return err
			},
			"WaitAtMost": func() error {
				_, _, err := l.Lock(bg, rlock.WaitAtMost(100*time.Millisecond))
				if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rlock.ErrLocked) {
					t.Errorf("%v", err)
				}
				return err
			},
			"TryLock": func() error {
				_, _, err := l.TryLock(bg, rlock.WaitAtMost(100*time.Millisecond))
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%v", err)
				}
				return err
			},
		} {
			frozen.Freeze()
			var err error
			done := make(chan struct{})
			go func() { err = take(); close(done) }()
			within(t, name+" ends", done)
			frozen.Thaw()
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != 2 {
				t.Errorf("%s: %v", name, err)
			}
			eventually(t, "all is free", func() bool { return free(t, ms...) })
		}
	}
}

func TestCloseEndsTheWaitAndTheHold(t *testing.T) {
	server, other := testredis.Start(t), testredis.Start(t)
	waits := make(waitingSignal, 10)
	closing := newSession(t, server.Client(t), rlock.WithObserver(waits))
	there := rlock.New(newSession(t, other.Client(t)), "there")
	l := multilock.New(there, rlock.New(closing, "here"))
	theirs := rlock.New(newSession(t, server.Client(t)), "here")
	_, busy := lock(t, theirs, bg)
	done := make(chan error)
	go func() {
		_, _, err := l.Lock(bg)
		done <- err
	}()
	<-waits
	must(t, closing.Close())
	var member *multilock.MemberError
	if err := <-done; !errors.Is(err, rlock.ErrClosed) || !errors.As(err, &member) || member.Index != 1 {
		t.Errorf("%v", err)
	}
	unlock(t, busy)
	closing = newSession(t, server.Client(t))
	l = multilock.New(there, rlock.New(closing, "here"))
	ctx, hold := lock(t, l, bg)
	must(t, closing.Close())
	within(t, "the context ends", ctx.Done())
	if !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(hold.Err(), rlock.ErrClosed) || free(t, there) {
		t.Errorf("%v, %v", context.Cause(ctx), hold.Err())
	}
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrClosed) || !free(t, there) {
		t.Errorf("%v", err)
	}
}

// logged is a logger that keeps what it is told.
type logged struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

func TestAForgottenHoldIsReleasedMemberByMember(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		log := new(logged)
		s := newSession(t, rdb, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		ms := []*rlock.Mutex{rlock.New(s, "a"), rlock.New(s, "b"), fairlock.New(s, "c")}
		l := multilock.New(ms[0], ms[1], ms[2])
		ctx, _ := lock(t, l, bg)
		for range 20 {
			runtime.GC()
		}
		for _, m := range ms {
			if free(t, m) {
				t.Errorf("%s was released, and its context is in use", m.Name())
			}
		}
		done := ctx.Done() // from here on, nobody has the context
		eventually(t, "released", func() bool { runtime.GC(); return free(t, ms...) })
		within(t, "the context ends", done)
		if n := log.count("forgotten"); n != len(ms) {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestAForgottenFixedLeaseOfManyKeepsItsOwnerFromNothing(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		s := newSession(t, rdb)
		l := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"), fairlock.New(s, "c"))
		owner := rlock.WithOwner(bg)
		ended := func() <-chan struct{} {
			ctx, _ := lock(t, l, owner, rlock.WithLease(150*time.Millisecond))
			return ctx.Done()
		}()
		within(t, "lost", ended)
		eventually(t, "locked again", func() bool {
			runtime.GC()
			_, hold, err := l.TryLock(owner)
			if err != nil && !errors.Is(err, rlock.ErrLost) && !errors.Is(err, rlock.ErrLocked) {
				t.Fatal(err)
			}
			return err == nil && hold.Unlock(bg) == nil
		})
	})
}

func TestOnAClusterOnlyKeysOfOneSlotShareARequest(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	for prefix, name := range map[string]string{"lockline": "different slots", "{app}": "one slot"} {
		s := newSession(t, rdb, rlock.WithPrefix(prefix))
		ms, members := namesOf(s, 12)
		l := multilock.New(append(members, fairlock.New(s, "fair"))...)
		for range 3 {
			ctx, hold := lock(t, l, bg)
			_, nested := lock(t, l, ctx)
			unlock(t, nested)
			if free(t, ms...) {
				t.Errorf("%s: not held", name)
			}
			unlock(t, hold)
			if !free(t, ms...) {
				t.Errorf("%s: something is left", name)
			}
		}
	}
}

// leaver is a Locker that is always taken, and whose TryLock ends the caller's context.
type leaver struct{ leave context.CancelFunc }

func (leaver) Name() string { return "taken" }

func (l leaver) Lock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return ctx, nil, ctx.Err()
}

func (l leaver) TryLock(ctx context.Context, _ ...rlock.Option) (context.Context, *rlock.Hold, error) {
	l.leave()
	return ctx, nil, &rlock.LockedError{Name: "taken"}
}

// The members that were had must be given back, though the next round, which the end of the context ends,
// begins meanwhile.
func TestWhoeverLeavesWhileStartingOverKeepsNoMember(t *testing.T) {
	var log bytes.Buffer // a Hold that was forgotten would be released in the end, and logged
	s := newSession(t, redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()}), rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	m := rlock.New(s, "a")
	for range 20 {
		ctx, cancel := context.WithTimeout(bg, patience)
		_, hold, err := multilock.New(m, leaver{cancel}).Lock(ctx)
		cancel()
		if hold != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("Lock: %v, %v", hold, err)
		}
	}
	eventually(t, "nothing is held", func() bool { runtime.GC(); return free(t, m) })
	must(t, s.Close())
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

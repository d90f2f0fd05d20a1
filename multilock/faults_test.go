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
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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
	add("lock", "../internal/queue/lock.lua", "../internal/queue/lock_several.lua")
	add("release", "../internal/queue/release.lua", "../internal/queue/release_several.lua")
	add("keep", "../internal/protocol/keep.lua")
	return m
})

// namesOf are locks of one session.
func namesOf(s *rlock.Session, n int) (ms []*rlock.Mutex, members []rlock.Locker) {
	for i := range n {
		m := rlock.New(s, fmt.Sprint("m", i))
		ms, members = append(ms, m), append(members, m)
	}
	return ms, members
}

func TestMembersOnOneServerAreTakenByOneRequest(t *testing.T) {
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	for _, n := range []int{1, 2, 7, 100} {
		_, members := namesOf(testlock.NewSession(t, proxy.Client(t)), n)
		l := multilock.New(members...)
		testlock.Warm(t, l)
		proxy.Reset()
		ctx, hold := testlock.Lock(t, l, bg)
		if proxy.Count() != 1 {
			t.Errorf("%d members: %d requests to lock", n, proxy.Count())
		}
		proxy.Reset()
		testlock.Unlock(t, hold)
		if proxy.Count() != 1 {
			t.Errorf("%d members: %d requests to unlock", n, proxy.Count())
		}
		_ = ctx
	}
}

func TestOneThatIsTakenCostsOneRequestAndTakesNothing(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	ms, members := namesOf(testlock.NewSession(t, proxy.Client(t)), 5)
	l := multilock.New(members...)
	testlock.Warm(t, l)
	for i := range ms {
		_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, server.Client(t)), ms[i].Name()), bg)
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
		testlock.Unlock(t, hold)
	}
}

func TestRepliesThatAreLostLeaveEveryMemberExact(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, members := namesOf(testlock.NewSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(3*time.Second)), 3)
	ms, _ := namesOf(testlock.NewSession(t, server.Client(t)), 3)
	l := multilock.New(members...)
	testlock.Warm(t, l)
	lost := testlock.Lossy(proxy, rand.New(rand.NewPCG(5, 6)), func(r *faultproxy.Request) string {
		name := scripts()[r.Script()]
		if name == "" {
			return ""
		}
		return name + strings.Join(r.Args[2:5], " ")
	})
	last := make([]int64, len(ms))
	for range 150 {
		_, hold := testlock.Lock(t, l, bg)
		for i, m := range ms {
			st := testlock.Inspect(t, m)
			if token := hold.Parts()[i].Token(); st.Count != 1 || st.Token != token || token <= last[i] {
				t.Fatalf("%+v; token %d after %d", st, token, last[i])
			}
			last[i] = hold.Parts()[i].Token()
		}
		testlock.Unlock(t, hold)
		if !free(t, ms...) {
			t.Fatal("something is left")
		}
	}
	if n := lost(); n < 100 {
		t.Errorf("only %d replies were lost", n)
	}
}

func TestALateCopyOfARequestForSeveralTakesNone(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, members := namesOf(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), 3)
	ms, _ := namesOf(testlock.NewSession(t, server.Client(t)), 3)
	l := multilock.New(members...)
	testlock.Warm(t, l)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for name, then := range map[string]func() *rlock.Hold{
		"granted to the second copy": func() *rlock.Hold { _, h := testlock.Lock(t, l, bg); return h },
		"canceled": func() *rlock.Hold {
			_, h, err := l.Lock(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			return h
		},
	} {
		var n atomic.Int32
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if scripts()[r.Script()] == "lock" && n.Add(1) == 1 {
				if name == "canceled" {
					cancel()
				}
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
		released := make(chan struct{}, 100)
		proxy.OnReply(func(r faultproxy.Request) {
			if scripts()[r.Script()] == "release" {
				released <- struct{}{}
			}
		})
		hold := then()
		testlock.Eventually(t, "the first copy is under way", func() bool { return len(proxy.Held()) == 1 })
		if hold != nil {
			testlock.Unlock(t, hold)
		} else {
			// The undoing tells Redis of the copy, once the request's time is over.
			testlock.Receive(t, "marked as over", released)
		}
		testlock.Eventually(t, "free", func() bool { return free(t, ms...) })
		testlock.Must(t, proxy.Release(proxy.Held()[0]))
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
	here, there := testlock.NewSession(t, direct[0]), testlock.NewSession(t, direct[1])
	watch := []*rlock.Mutex{rlock.New(here, "a"), rlock.New(here, "b"), fairlock.New(here, "c"), rlock.New(there, "d"), fairlock.New(there, "e")}
	for name, action := range map[string]faultproxy.Action{
		"arrives": faultproxy.Pass, "is lost": faultproxy.DropAndCut, "is executed": faultproxy.CutReply, "is never answered": faultproxy.SwallowReply,
	} {
		t.Run("the request "+name, func(t *testing.T) {
			waits := make(testlock.Waits, 100)
			mine := testlock.NewSession(t, proxies[0].Client(t, testlock.Impatient))
			yours := testlock.NewSession(t, proxies[1].Client(t, testlock.Impatient), rlock.WithObserver(waits))
			l := multilock.New(rlock.New(mine, "a"), rlock.New(mine, "b"), fairlock.New(mine, "c"), rlock.New(yours, "d"), fairlock.New(yours, "e"))
			for step, through := 1, false; !through; step++ {
				// One is taken, and freed when it is waited for: so there is a second round.
				_, busy := testlock.Lock(t, watch[4], bg)
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
					testlock.Unlock(t, hold)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("step %d: %v", step, err)
					through = true
				}
				cancel()
				close(done)
				testlock.Must(t, <-freed)
				testlock.Eventually(t, fmt.Sprintf("step %d: all is free", step), func() bool { return free(t, watch...) })
				if step > 100 {
					t.Fatal("it never gets through")
				}
			}
			testlock.Must(t, mine.Close())
			testlock.Must(t, yours.Close())
			for _, rdb := range direct {
				testlock.OnlyTokens(t, rdb)
				testlock.NoSubscriptions(t, rdb)
			}
		})
	}
}

func TestAKeyOfAnotherTypeIsOfOneMemberOnly(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		ms, members := namesOf(testlock.NewSession(t, rdb), 5)
		l := multilock.New(members...)
		for i := range ms {
			_, hold := testlock.Lock(t, l, bg)
			key := fmt.Sprintf("lockline:r:{m%d}", i)
			testlock.Must(t, rdb.Set(bg, key, "mine", 0).Err())
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
			testlock.Must(t, rdb.Del(bg, key).Err())
		}
	})
}

func TestAGrantThatIsTooLateForSomeIsGivenBackAndAskedForAnew(t *testing.T) {
	const lease = 1500 * time.Millisecond
	rdb := testredis.Start(t).Client(t)
	var slow atomic.Int32
	// Whoever is told of the second member's first hold takes too long for the rest.
	watch := testlock.Observer(func(e rlock.Event) {
		if e.Kind == rlock.Acquired && e.Name == "m1" && slow.Add(1) == 2 {
			<-time.After(lease)
		}
	})
	ms, members := namesOf(testlock.NewSession(t, rdb, rlock.WithObserver(watch), rlock.WithWatchdogTimeout(lease)), 4)
	l := multilock.New(members...)
	_, hold := testlock.Lock(t, l, bg)
	tokens := hold.Parts()
	testlock.Unlock(t, hold)
	_, hold = testlock.Lock(t, l, bg)
	for i, p := range hold.Parts() {
		if p.Err() != nil || p.Token() <= tokens[i].Token() {
			t.Errorf("%s: %v", p.Name(), p.Err())
		}
	}
	if slow.Load() != 3 {
		t.Errorf("m1 was held %d times", slow.Load())
	}
	testlock.Unlock(t, hold)
	testlock.Eventually(t, "all is free", func() bool { return free(t, ms...) })
}

func TestAServerThatDiesInBetweenIsNamedAndTheOthersAreGivenBack(t *testing.T) {
	alive := testredis.Start(t)
	proxy := faultproxy.New(t, alive.Addr)
	dying := testredis.Start(t)
	ms, members := namesOf(testlock.NewSession(t, proxy.Client(t)), 2)
	l := multilock.New(append(members, rlock.New(testlock.NewSession(t, dying.Client(t, testlock.Impatient)), "x"))...)
	testlock.Warm(t, l)
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
	ms, members := namesOf(testlock.NewSession(t, alive.Client(t)), 2)
	there := testlock.NewSession(t, frozen.Client(t, func(o *redis.Options) { o.ReadTimeout = 10 * testlock.Patience }))
	ms = append(ms, rlock.New(there, "x"), fairlock.New(there, "y"))
	for _, last := range ms[2:] {
		l := multilock.New(append(members, last)...)
		testlock.Warm(t, l)
		for name, take := range map[string]func() error{
			"deadline": func() error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				_, _, err := l.Lock(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				return err
			},
			"WaitAtMost": func() error {
				_, _, err := l.Lock(bg, rlock.WaitAtMost(time.Second))
				if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rlock.ErrLocked) {
					t.Errorf("%v", err)
				}
				return err
			},
			"TryLock": func() error {
				_, _, err := l.TryLock(bg, rlock.WaitAtMost(time.Second))
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
			testlock.Receive(t, name+" ends", done)
			frozen.Thaw()
			var member *multilock.MemberError
			if !errors.As(err, &member) || member.Index != 2 {
				t.Errorf("%s: %v", name, err)
			}
			testlock.Eventually(t, "all is free", func() bool { return free(t, ms...) })
		}
	}
}

func TestCloseEndsTheWaitAndTheHold(t *testing.T) {
	server, other := testredis.Start(t), testredis.Start(t)
	waits := make(testlock.Waits, 10)
	closing := testlock.NewSession(t, server.Client(t), rlock.WithObserver(waits))
	there := rlock.New(testlock.NewSession(t, other.Client(t)), "there")
	l := multilock.New(there, rlock.New(closing, "here"))
	theirs := rlock.New(testlock.NewSession(t, server.Client(t)), "here")
	_, busy := testlock.Lock(t, theirs, bg)
	done := make(chan error)
	go func() {
		_, _, err := l.Lock(bg)
		done <- err
	}()
	<-waits
	testlock.Must(t, closing.Close())
	var member *multilock.MemberError
	if err := <-done; !errors.Is(err, rlock.ErrClosed) || !errors.As(err, &member) || member.Index != 1 {
		t.Errorf("%v", err)
	}
	testlock.Unlock(t, busy)
	closing = testlock.NewSession(t, server.Client(t))
	l = multilock.New(there, rlock.New(closing, "here"))
	ctx, hold := testlock.Lock(t, l, bg)
	testlock.Must(t, closing.Close())
	testlock.Receive(t, "the context ends", ctx.Done())
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
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		log := new(logged)
		s := testlock.NewSession(t, rdb, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		ms := []*rlock.Mutex{rlock.New(s, "a"), rlock.New(s, "b"), fairlock.New(s, "c")}
		l := multilock.New(ms[0], ms[1], ms[2])
		ctx, _ := testlock.Lock(t, l, bg)
		for range 20 {
			runtime.GC()
		}
		for _, m := range ms {
			if free(t, m) {
				t.Errorf("%s was released, and its context is in use", m.Name())
			}
		}
		done := ctx.Done() // from here on, nobody has the context
		testlock.Eventually(t, "released", func() bool { runtime.GC(); return free(t, ms...) })
		testlock.Receive(t, "the context ends", done)
		if n := log.count("forgotten"); n != len(ms) {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestAForgottenFixedLeaseOfManyKeepsItsOwnerFromNothing(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		s := testlock.NewSession(t, rdb)
		l := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"), fairlock.New(s, "c"))
		owner := rlock.WithOwner(bg)
		ended := func() <-chan struct{} {
			ctx, _ := testlock.Lock(t, l, owner, rlock.WithLease(time.Second))
			return ctx.Done()
		}()
		testlock.Receive(t, "lost", ended)
		testlock.Eventually(t, "locked again", func() bool {
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
		s := testlock.NewSession(t, rdb, rlock.WithPrefix(prefix))
		ms, members := namesOf(s, 12)
		l := multilock.New(append(members, fairlock.New(s, "fair"))...)
		for range 3 {
			ctx, hold := testlock.Lock(t, l, bg)
			_, nested := testlock.Lock(t, l, ctx)
			testlock.Unlock(t, nested)
			if free(t, ms...) {
				t.Errorf("%s: not held", name)
			}
			testlock.Unlock(t, hold)
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
	s := testlock.NewSession(t, testlock.Embedded(t), rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	m := rlock.New(s, "a")
	for range 20 {
		ctx, cancel := context.WithTimeout(bg, testlock.Patience)
		_, hold, err := multilock.New(m, leaver{cancel}).Lock(ctx)
		cancel()
		if hold != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("Lock: %v, %v", hold, err)
		}
	}
	testlock.Eventually(t, "nothing is held", func() bool { runtime.GC(); return free(t, m) })
	testlock.Must(t, s.Close())
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

// The first copy was granted both, and its reply lost; one of them was forced before the second copy.
func TestAStaleAnswerLeavesNothingOfTheOtherLocks(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	s, direct := testlock.NewSession(t, proxy.Client(t)), testlock.NewSession(t, rdb)
	both := multilock.New(rlock.New(s, "a"), rlock.New(s, "b"))
	testlock.Works(t, both)
	var n atomic.Int64
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Script() == "" || r.Args[2] != "10" { // keys
			return faultproxy.Pass
		}
		switch n.Add(1) {
		case 1:
			return faultproxy.CutReply
		case 2:
			testlock.ForceUnlock(t, rlock.New(direct, "b"))
		}
		return faultproxy.Pass
	})
	testlock.Works(t, both)
	if n.Load() < 3 {
		t.Errorf("%d requests for both", n.Load())
	}
	for _, name := range []string{"a", "b"} {
		testlock.Works(t, rlock.New(direct, name))
	}
}

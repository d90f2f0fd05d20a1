package multilock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// cycles times n cycles of lock and unlock.
func cycles(t testing.TB, m *rlock.Mutex, n int) (times []time.Duration) {
	t.Helper()
	for range n {
		start := time.Now()
		testlock.Works(t, m)
		times = append(times, time.Since(start))
	}
	return times
}

// Two of five servers are bad, each in its way: the first acquisition costs no more than
// a time-out, and once they are known, cycles are as fast as before, and leave nothing that grows.
func TestTwoBadServersOfFiveSlowNobodyDown(t *testing.T) {
	const timeout = 250 * time.Millisecond
	for name, spoil := range map[string]func(t *testing.T, r *redServers, p []*faultproxy.Proxy){
		"killed": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			r.servers[0].Kill()
			r.servers[1].Kill()
		},
		"frozen": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			for _, s := range r.servers[:2] {
				s.Freeze()
				t.Cleanup(s.Thaw)
			}
		},
		"slow by 2 s": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			p[0].SetDelay(time.Second) // each way
			p[1].SetDelay(time.Second)
		},
		"cut": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			for _, p := range p[:2] {
				p.OnRequest(func(*faultproxy.Request) faultproxy.Action { return faultproxy.DropAndCut })
			}
		},
		"cutting replies": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			for _, p := range p[:2] {
				p.OnRequest(func(*faultproxy.Request) faultproxy.Action { return faultproxy.CutReply })
			}
		},
		"refusing": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			for _, p := range p[:2] {
				p.Refuse(true)
				p.CutAll()
			}
		},
		"read only": func(t *testing.T, r *redServers, p []*faultproxy.Proxy) {
			for _, c := range r.direct[:2] {
				testlock.Must(t, c.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, proxies := startProxied(t)
			var mutexes []*rlock.Mutex // of five processes, to be surprised one after another
			for range 5 {
				mutexes = append(mutexes, proxied(t, proxies, timeout))
			}
			_, others := startProxied(t)
			healthy := proxied(t, others, timeout) // meanwhile

			m := mutexes[0]
			usual := median(cycles(t, m, 100))
			spoil(t, r, proxies)
			var firsts []time.Duration
			for _, m := range mutexes {
				firsts = append(firsts, cycles(t, m, 1)...)
			}
			first := median(firsts)
			if first > timeout+20*usual {
				t.Errorf("the first cycle took %v, where a healthy one takes %v and the timeout is %v", first, usual, timeout)
			}
			for start := time.Now(); time.Since(start) < 3*timeout; { // until it is known
				_ = cycles(t, m, 1)
			}
			var good, bad []time.Duration
			for range 100 {
				good = append(good, cycles(t, healthy, 1)...)
				bad = append(bad, cycles(t, m, 1)...)
			}
			ratio := float64(median(bad)) / float64(median(good))
			t.Logf("first %v, then %v, %v beside it on healthy ones: %.2f times", first, median(bad), median(good), ratio)
			// To wait for a bad one would take hundreds of times as long.
			if ratio > 4 {
				t.Errorf("a cycle takes %.2f times a healthy one", ratio)
			}
		})
	}
}

// startProxied starts five servers, each behind a proxy.
func startProxied(t *testing.T) (*redServers, []*faultproxy.Proxy) {
	t.Helper()
	r := startServers(t, 5)
	proxies, _ := r.proxied(t)
	return r, proxies
}

// proxied is a RedLock of a process of its own.
func proxied(t *testing.T, proxies []*faultproxy.Proxy, timeout time.Duration) *rlock.Mutex {
	t.Helper()
	var clients []*redis.Client
	for _, p := range proxies {
		clients = append(clients, p.Client(t))
	}
	q, err := multilock.NewQuorum(sessions(t, clients), multilock.WithServerTimeout(timeout))
	testlock.Must(t, err)
	return warmed(t, q.New("x"))
}

// What frozen servers find in their sockets when they go on changes nothing.
func TestThawedServersAreLeftWithNothing(t *testing.T) {
	r := startServers(t, 5)
	m := warmed(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(20*time.Second))...))
	r.free(t)
	for _, s := range r.servers[:2] {
		s.Freeze()
	}
	_ = cycles(t, m, 20)
	for _, s := range r.servers[:2] {
		s.Thaw()
	}
	r.free(t)
	testlock.Eventually(t, "asked again", func() bool {
		hold := testlock.Take(t, m)
		all := r.unanimous(t)
		testlock.Unlock(t, hold)
		return all
	})
}

// A request whose reply is lost is sent again, and is one attempt; a vote that is
// lost is given back also where its request arrives after everything else.
func TestALateCopyOfALostVoteTakesNothing(t *testing.T) {
	r := startServers(t, 5)
	proxies, clients := r.proxied(t)
	q, err := multilock.NewQuorum(sessions(t, clients), multilock.WithServerTimeout(100*time.Millisecond))
	testlock.Must(t, err)
	m := warmed(t, q.New("x"))
	r.settle(t, m)
	lock := scriptFile(t, "redlock_lock.lua")
	for _, p := range proxies[:3] { // three servers are asked and do not hear of it yet
		p.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			if q.Script() == lock {
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
	}
	if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Fatalf("TryLock: %v", err)
	}
	r.free(t)
	marked := func(c *redis.Client) bool {
		for field := range c.HGetAll(bg, redMemory).Val() {
			if len(field) > 10 {
				return true
			}
		}
		return false
	}
	for i := range 3 {
		testlock.Eventually(t, "the release is there", func() bool { return marked(r.direct[i]) })
		for _, q := range proxies[i].Held() {
			testlock.Must(t, proxies[i].Release(q))
		}
	}
	testlock.Eventually(t, "asked again", func() bool {
		_, _, err := m.TryLock(bg)
		return err != nil
	})
	if n := r.held(t); n > 2 {
		t.Errorf("a late request was granted: %d hold", n)
	}
	for _, p := range proxies {
		p.OnRequest(nil)
	}
}

// Three of five have granted, the others have not voted yet, and one of the three dies: four are
// left, and what is asked of them next has a majority as soon as they vote.
func TestWhatFollowsAVoteCountsThoseThatVoteLater(t *testing.T) {
	for name, next := range map[string]func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error{
		"unlock": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error { return hold.Unlock(ctx) },
		"re-entry": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error {
			_, _, err := m.Lock(ctx)
			return err
		},
		"extend": func(ctx context.Context, m *rlock.Mutex, hold *rlock.Hold) error {
			return hold.Extend(ctx, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, proxies := startProxied(t)
			m := proxied(t, proxies, 10*time.Second)
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			for _, p := range proxies[3:] {
				p.OnRequest(func(*faultproxy.Request) faultproxy.Action {
					<-gate
					return faultproxy.Pass
				})
			}
			ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
			defer func() {
				open()
				_ = hold.Unlock(bg)
			}()
			r.servers[0].Kill()
			proxies[1].Reset()
			proxies[2].Reset()
			done := make(chan error, 1)
			go func() { done <- next(ctx, m, hold) }()
			testlock.Eventually(t, "asked of the others", func() bool { return proxies[1].Count() > 0 && proxies[2].Count() > 0 })
			open()
			if err := <-done; err != nil {
				t.Error(err)
			}
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

func TestAClientThatPanicsIsOneServerThatFails(t *testing.T) {
	r := startServers(t, 3)
	hooks, clients := make([]panicky, 3), []*redis.Client(nil)
	for i, s := range r.servers {
		clients = append(clients, s.Client(t))
		clients[i].AddHook(testlock.Around(hooks[i].around))
	}
	m := warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(2*testlock.Patience))...))
	lock := scriptFile(t, "redlock_lock.lua")
	var votes atomic.Int64
	all := func(cmd redis.Cmder) bool {
		if args := cmd.Args(); len(args) > 1 && args[1] == lock {
			votes.Add(1)
		}
		return true
	}
	none := func(redis.Cmder) bool { return false }
	hooks[0].set(all)
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	_, nested := testlock.Lock(t, m, ctx)
	testlock.Unlock(t, nested)
	testlock.Eventually(t, "asked in vain", func() bool { return votes.Load() > 0 }) // the others may have decided before
	testlock.Unlock(t, hold)
	hooks[1].set(all)
	if _, _, err := m.Lock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("two of three: %v", err)
	}
	hooks[1].set(none)
	before := votes.Load()
	hold = testlock.Take(t, m)
	testlock.Eventually(t, "asked in vain", func() bool { return votes.Load() > before })
	hooks[0].set(none)
	hooks[1].set(all)
	if err := hold.Unlock(bg); err == nil || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("Unlock: %v", err)
	}
	hooks[1].set(none)
	r.free(t)
}

func TestAProbeThatPanicsEndsNothing(t *testing.T) {
	r := startServers(t, 3)
	hook, rdb := &panicky{}, r.servers[0].Client(t)
	rdb.AddHook(testlock.Around(hook.around))
	clients := []*redis.Client{rdb, r.servers[1].Client(t), r.servers[2].Client(t)}
	q, err := multilock.NewQuorum(sessions(t, clients), multilock.WithServerTimeout(250*time.Millisecond))
	testlock.Must(t, err)
	m := warmed(t, q.New("x"))
	probed := make(chan struct{})
	var once sync.Once
	hook.set(func(cmd redis.Cmder) bool {
		if cmd.Name() == "ping" {
			once.Do(func() { close(probed) })
			return true
		}
		return false
	})
	r.servers[0].Freeze()
	testlock.Eventually(t, "a probe", func() bool {
		_ = cycles(t, m, 1)
		select {
		case <-probed:
			return true
		default:
			return false
		}
	})
	r.servers[0].Thaw()
	testlock.Eventually(t, "asked again", func() bool {
		hold := testlock.Take(t, m)
		all := r.unanimous(t)
		testlock.Unlock(t, hold)
		return all
	})
}

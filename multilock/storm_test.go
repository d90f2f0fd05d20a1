package multilock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// arena are locks on two servers, some of them fair, and for each a counter that
// nothing else guards.
type arena struct {
	clients [2]*redis.Client
	locks   []*rlock.Mutex
	at      []int // the server of each
}

func newArena(t testing.TB, clients [2]*redis.Client, sessions [2]*rlock.Session, plain, fair int) *arena {
	a := &arena{clients: clients}
	for at, s := range sessions {
		for i := range plain + fair {
			newMutex := rlock.New
			if i >= plain {
				newMutex = fairlock.New
			}
			a.locks = append(a.locks, newMutex(s, fmt.Sprint(at, "/", i)))
			a.at = append(a.at, at)
		}
	}
	return a
}

// someOf is a random set in random order.
func (a *arena) someOf(rnd *rand.Rand, most int) []int {
	return rnd.Perm(len(a.locks))[:2+rnd.IntN(most-1)]
}

func (a *arena) multi(set []int) *multilock.MultiLock {
	var members []rlock.Locker
	for _, i := range set {
		members = append(members, a.locks[i])
	}
	return multilock.New(members...)
}

func counter(i int) string { return fmt.Sprint("counter", i) }

// use counts on the counters of a set, whose updates are lost where two do so at once.
func (a *arena) use(ctx context.Context, set []int) error {
	read := [2]redis.Pipeliner{a.clients[0].Pipeline(), a.clients[1].Pipeline()}
	values := map[int]*redis.StringCmd{}
	for _, i := range set {
		values[i] = read[a.at[i]].Get(ctx, counter(i))
	}
	for _, p := range read {
		if _, err := p.Exec(ctx); err != nil && err != redis.Nil {
			return err
		}
	}
	write := [2]redis.Pipeliner{a.clients[0].Pipeline(), a.clients[1].Pipeline()}
	for i, value := range values {
		n, _ := value.Int()
		write[a.at[i]].Set(ctx, counter(i), n+1, 0)
	}
	for _, p := range write {
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tally is how acquisitions went.
type tally struct {
	sets, restarts, most int64
	used                 []int64 // how often each lock was
}

type acquirer func(ctx context.Context, set []int, restarted func(int)) (held context.Context, release func() error, err error)

// storm has goroutines acquire random sets, each so many times or until ctx ends.
func (a *arena) storm(ctx context.Context, seed uint64, goroutines, rounds int, acquire acquirer) (tally, error) {
	var restarts, most, sets atomic.Int64
	used := make([]int64, len(a.locks))
	errs := make(chan error, goroutines)
	for g := range goroutines {
		go func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			for range rounds {
				set := a.someOf(rnd, 5)
				held, release, err := acquire(ctx, set, func(n int) {
					restarts.Add(1)
					for m := most.Load(); int64(n) > m && !most.CompareAndSwap(m, int64(n)); m = most.Load() {
					}
				})
				if err == nil {
					err = errors.Join(a.use(held, set), release())
				}
				if ctx.Err() != nil { // whatever it interrupted
					break
				}
				if err != nil {
					errs <- fmt.Errorf("%v: %w", set, err)
					return
				}
				sets.Add(1)
				for _, i := range set {
					atomic.AddInt64(&used[i], 1)
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range goroutines {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return tally{sets.Load(), restarts.Load(), most.Load(), used}, err
}

// together acquires by a MultiLock.
func (a *arena) together(ctx context.Context, set []int, restarted func(int)) (context.Context, func() error, error) {
	l := a.multi(set)
	l.OnRestart(restarted)
	ctx, hold, err := l.Lock(ctx)
	return ctx, func() error { return hold.Unlock(bg) }, err
}

const goroutinesEach = 8

// contend is a process that acquires random sets: the arguments are the servers, the seed and the rounds.
func contend(args string) {
	var addrs [2]string
	var seed uint64
	var rounds int
	if _, err := fmt.Sscan(args, &addrs[0], &addrs[1], &seed, &rounds); err != nil {
		panic(err)
	}
	var clients [2]*redis.Client
	var sessions [2]*rlock.Session
	for i, addr := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
		s, err := rlock.NewSession(clients[i])
		if err != nil {
			panic(err)
		}
		sessions[i] = s
	}
	a := newArena(nil, clients, sessions, 4, 2)
	t, err := a.storm(bg, seed, goroutinesEach, rounds, a.together)
	for _, s := range sessions {
		if e := s.Close(); e != nil {
			err = e
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(t.sets, t.restarts, t.most)
	for _, n := range t.used {
		fmt.Println(n)
	}
}

func TestRandomOverlappingSetsInManyProcessesAllGetThrough(t *testing.T) {
	processes, rounds := 6, 60
	if testing.Short() {
		processes, rounds = 3, 15
	}
	var servers [2]*testredis.Server
	var clients [2]*redis.Client
	for i := range servers {
		servers[i] = testredis.Start(t)
		clients[i] = servers[i].Client(t)
	}
	start := time.Now()
	var outputs []*bytes.Buffer
	var wg sync.WaitGroup
	for p := range processes {
		cmd := testlock.Child(servers[0].Addr, servers[1].Addr, p, rounds)
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		outputs = append(outputs, out)
		testlock.Must(t, cmd.Start())
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("contender: %v", err)
			}
		})
	}
	wg.Wait()
	var all tally
	a := newArena(t, clients, [2]*rlock.Session{testlock.NewSession(t, clients[0]), testlock.NewSession(t, clients[1])}, 4, 2)
	all.used = make([]int64, len(a.locks))
	for _, out := range outputs {
		var sum tally
		if _, err := fmt.Fscan(out, &sum.sets, &sum.restarts, &sum.most); err != nil {
			t.Fatal(err)
		}
		all.sets, all.restarts, all.most = all.sets+sum.sets, all.restarts+sum.restarts, max(all.most, sum.most)
		for i := range all.used {
			var n int64
			if _, err := fmt.Fscan(out, &n); err != nil {
				t.Fatal(err)
			}
			all.used[i] += n
		}
	}
	if want := int64(processes * goroutinesEach * rounds); all.sets != want {
		t.Errorf("%d sets, want %d", all.sets, want)
	}
	for i, used := range all.used {
		if n, err := clients[a.at[i]].Get(bg, counter(i)).Int64(); err != nil || n != used {
			t.Errorf("%s was held %d times, and counted %d: %v", a.locks[i].Name(), used, n, err)
		}
	}
	if !free(t, a.locks...) {
		t.Error("something is left")
	}
	t.Logf("%d sets in %v: %.2f restarts each, %d at most", all.sets, time.Since(start).Round(time.Millisecond), float64(all.restarts)/float64(all.sets), all.most)
}

// inOrder is Redisson's rule: each member is waited for in order, 1500 ms for each
// together, while those before it are held; when that is over, all are given back
// and it starts over.
func (a *arena) inOrder(ctx context.Context, set []int, restarted func(int)) (context.Context, func() error, error) {
	for restarts := 1; ; restarts++ {
		at, deadline := ctx, time.Now().Add(time.Duration(len(set))*1500*time.Millisecond)
		var holds []*rlock.Hold
		release := func() error {
			var err error
			for _, h := range slices.Backward(holds) {
				if e := h.Unlock(bg); e != nil {
					err = e
				}
			}
			return err
		}
		for _, i := range set {
			next, h, err := a.locks[i].Lock(at, rlock.WaitAtMost(max(0, time.Until(deadline))))
			if err != nil {
				if ctx.Err() != nil {
					return ctx, nil, errors.Join(err, release())
				}
				break
			}
			at, holds = next, append(holds, h)
		}
		if len(holds) == len(set) {
			return at, release, nil
		}
		if err := release(); err != nil {
			return ctx, nil, err
		}
		restarted(restarts)
	}
}

func TestMoreGetsThroughThanByHoldingAndWaitingWithATimeOut(t *testing.T) {
	period := 5 * time.Second
	if testing.Short() {
		period = 3 * time.Second
	}
	var clients [2]*redis.Client
	var sessions [2]*rlock.Session
	for i := range clients {
		clients[i] = testredis.Start(t).Client(t)
		sessions[i] = testlock.NewSession(t, clients[i])
	}
	a := newArena(t, clients, sessions, 6, 0)
	sets := func(name string, acquire acquirer) int64 {
		ctx, cancel := context.WithTimeout(bg, period)
		defer cancel()
		sum, err := a.storm(ctx, 1, 16, math.MaxInt, acquire)
		testlock.Must(t, err)
		t.Logf("%-20s %6d sets in %v, %.2f restarts each, %d at most", name, sum.sets, period, float64(sum.restarts)/float64(max(sum.sets, 1)), sum.most)
		return sum.sets
	}
	ours, theirs := sets("MultiLock", a.together), sets("in order, 1500 ms", a.inOrder)
	if ours == 0 || ours < 5*theirs {
		t.Errorf("%d, and %d in order with a time-out", ours, theirs)
	}
}

package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// longStreak lets a session keep its locks for as long as its own goroutines wait.
var longStreak = rlock.WithStreak(time.Minute)

// queueUp starts n goroutines that wait for l one behind the other, and tells who has it.
func queueUp(t *testing.T, waits waitingSignal, n int, l rlock.Locker) (served <-chan int, wg *sync.WaitGroup) {
	order, wg := make(chan int, n), new(sync.WaitGroup)
	for i := range n {
		wg.Go(func() {
			_, hold, err := l.Lock(bg)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			order <- i
			if err := hold.Unlock(bg); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		<-waits
	}
	return order, wg
}

func TestSeveralLocksAreHandedOnTogetherInMemory(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("on %d servers", servers), func(t *testing.T) {
			waits := make(waitingSignal, 100)
			var proxies []*faultproxy.Proxy
			var ms []*rlock.Mutex
			var members []rlock.Locker
			for range servers {
				proxy := faultproxy.New(t, testredis.Start(t).Addr)
				m, l := namesOf(newSession(t, proxy.Client(t), longStreak, rlock.WithObserver(waits)), 2)
				proxies, ms, members = append(proxies, proxy), append(ms, m...), append(members, l...)
			}
			l := multilock.New(members...)
			warm(t, l)
			_, hold := lock(t, l, bg)
			var first []int64
			for _, p := range hold.Parts() {
				first = append(first, p.Token())
			}
			const n = 20
			served, wg := queueUp(t, waits, n, l)
			for _, p := range proxies {
				p.Reset()
			}
			unlock(t, hold)
			wg.Wait()
			for _, p := range proxies {
				if sent := p.Count("EVALSHA", "EVAL"); sent != 1 {
					t.Errorf("%d requests for %d hand-overs and a release", sent, n)
				}
			}
			for i := range n {
				if who := <-served; who != i {
					t.Errorf("waiter %d is served as number %d", who, i)
				}
			}
			if !free(t, ms...) {
				t.Error("something is left")
			}
			_, next := lock(t, l, bg)
			for i, p := range next.Parts() {
				if p.Token() <= first[i]+n {
					t.Errorf("token %d after %d and %d hand-overs", p.Token(), first[i], n)
				}
			}
			unlock(t, next)
		})
	}
}

func TestWhoWaitsForSeveralIsNotHandedAFew(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		waits := make(waitingSignal, 100)
		ms, _ := namesOf(newSession(t, rdb, longStreak, rlock.WithObserver(waits)), 3)
		a, b, c := ms[0], ms[1], ms[2]

		t.Run("one of them was lost", func(t *testing.T) {
			ms, _ := namesOf(newSession(t, rdb, longStreak, rlock.WithObserver(waits), rlock.WithWatchdogTimeout(3*time.Second)), 2)
			a, b := ms[0], ms[1]
			ctx, hold := lock(t, multilock.New(a, b), bg)
			served, wg := queueUp(t, waits, 2, multilock.New(a, b))
			_, err := b.ForceUnlock(bg)
			must(t, err)
			<-ctx.Done() // a renewal has told the session
			if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			wg.Wait()
			if len(served) != 2 {
				t.Errorf("%d were served", len(served))
			}
		})
		t.Run("more are wanted than are unlocked", func(t *testing.T) {
			_, other := lock(t, rlock.New(newSession(t, rdb), c.Name()), bg)
			_, hold := lock(t, multilock.New(a, b), bg)
			served, wg := queueUp(t, waits, 1, multilock.New(a, b, c))
			unlock(t, hold)
			<-waits // for c
			if !free(t, a, b) {
				t.Error("it holds while it waits")
			}
			unlock(t, other)
			wg.Wait()
			if len(served) != 1 {
				t.Error("it was not served")
			}
		})
		t.Run("another one waits for the second", func(t *testing.T) {
			_, hold := lock(t, multilock.New(a, b), bg)
			lone, wg := queueUp(t, waits, 1, b)
			both, wg2 := queueUp(t, waits, 3, multilock.New(a, b))
			unlock(t, hold)
			wg.Wait()
			wg2.Wait()
			if len(lone) != 1 || len(both) != 3 {
				t.Errorf("%d and %d were served", len(lone), len(both))
			}
		})
		t.Run("an owner has the second already", func(t *testing.T) {
			owner := rlock.WithOwner(bg)
			at, outer := lock(t, b, owner)
			_, hold := lock(t, a, bg)
			got := make(chan error, 1)
			go func() {
				_, both, err := multilock.New(a, b).Lock(at)
				if err == nil {
					err = both.Unlock(bg)
				}
				got <- err
			}()
			<-waits
			unlock(t, hold)
			must(t, <-got)
			unlock(t, outer)
		})
		if !free(t, ms...) {
			t.Error("something is left")
		}
	})
}

// Waiters leave at any moment, also when they are being handed what they waited for; holders
// lose locks; sets overlap. Nobody meets another, and nothing is left.
func TestHandingSeveralOnWhileWaitersLeave(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	const names = 4
	var inside [names]atomic.Int32
	var entered, left atomic.Int32
	ms, _ := namesOf(newSession(t, rdb, longStreak), names)
	ctx, stop := context.WithTimeout(bg, 1500*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			for ctx.Err() == nil {
				set := rnd.Perm(names)[:1+rnd.IntN(3)]
				if g%3 > 0 { // many want the same
					set = []int{0, 1}
				}
				var members []rlock.Locker
				for _, i := range set {
					members = append(members, ms[i])
				}
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(20_000))*time.Microsecond)
				_, hold, err := multilock.New(members...).Lock(ctx)
				cancel()
				if err != nil {
					left.Add(1)
					continue
				}
				entered.Add(1)
				for _, i := range set {
					if inside[i].Add(1) != 1 {
						t.Errorf("two hold lock %d", i)
					}
				}
				for _, i := range set {
					inside[i].Add(-1)
				}
				if err := hold.Unlock(bg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d holds, %d left", entered.Load(), left.Load())
	if entered.Load() < 100 || left.Load() < 10 {
		t.Error("too little happened")
	}
	eventually(t, "all is free", func() bool { return free(t, ms...) })
}

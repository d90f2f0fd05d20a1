package redisson_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// The lease is longer than the waits, so that only news can end them.
func TestAReleaseWakesWhoeverWaits(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := redisson.New(testlock.NewSession(t, w.Client), "x"),
			redisson.New(testlock.NewSession(t, w.Client), "x")
		for range 3 {
			hold := testlock.Take(t, a)
			got := testlock.Join(bg, b)
			start := time.Now()
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, got))
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("it was woken after %v", took)
			}
		}
	})
}

// Its attempt has been refused, and does not know it yet.
func TestAReleaseThatIsPublishedBeforeTheRefusalArrivesIsNews(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		waiter := testlock.NewSession(t, w.Client)
		testlock.Works(t, redisson.New(waiter, "another")) // the session knows the clock of Redis after that
		hold := testlock.Take(t, redisson.New(testlock.NewSession(t,
			faultproxy.InMemory(t, w.Dial).Client(t)), "x"))
		asked := 0
		var unlocked time.Time
		w.Net.OnReply(func(r faultproxy.Request) {
			if r.Is("EVALSHA") && testlock.Script(r.Args[1]) == "acquire" {
				if asked++; asked == 2 { // the session has subscribed by then
					testlock.Unlock(t, hold)
					time.Sleep(10 * time.Millisecond)
					unlocked = time.Now()
				}
			}
		})
		next := testlock.Granted(t, testlock.Go(bg, redisson.New(waiter, "x")))
		if took := time.Since(unlocked); asked != 3 || took > 100*time.Millisecond {
			t.Errorf("it has the lock by request %d, after %v", asked, took)
		}
		w.Net.OnReply(nil)
		testlock.Unlock(t, next)
	})
}

func TestWhereNothingIsPublishedAWaitLastsAsLongAsTheLease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const lease = 5 * time.Second
		m := redisson.New(testlock.NewSession(t, w.Client), "x")
		hold := testlock.Take(t, redisson.New(testlock.NewSession(t, w.Client), "x", rlock.WithLease(lease)))
		start := time.Now()
		got := testlock.Join(bg, m)
		testlock.Must(t, w.Client.Del(bg, "x").Err())
		next := testlock.Granted(t, got)
		if took := time.Since(start); took < lease-time.Second || took > lease+time.Second {
			t.Errorf("it has the lock after %v", took)
		}
		testlock.WantError(t, "the hold whose data are gone", hold.Unlock(bg), rlock.ErrLost)
		testlock.Unlock(t, next)
	})
}

// Its next request would leave before the message of its release has reached the others.
func TestASessionThatHasHadItsTurnLetsOthersGoFirst(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.Net.SetDelay(100 * time.Microsecond)
		farther := faultproxy.InMemory(t, w.Dial)
		farther.SetDelay(300 * time.Microsecond)
		ctx, cancel := context.WithCancel(bg)
		busy := redisson.New(testlock.NewSession(t, w.Client), "x")
		ended := make(chan struct{}, 3)
		for range cap(ended) {
			go func() {
				defer func() { ended <- struct{}{} }()
				for ctx.Err() == nil {
					_ = busy.Do(ctx, func(context.Context) error { time.Sleep(time.Millisecond); return nil })
				}
			}()
		}
		time.Sleep(time.Second)
		m := redisson.New(testlock.NewSession(t, farther.Client(t)), "x")
		for range 10 {
			start := time.Now()
			hold := testlock.Take(t, m)
			if took := time.Since(start); took > 50*time.Millisecond {
				t.Errorf("it was served after %v", took)
			}
			testlock.Unlock(t, hold)
		}
		cancel()
		for range cap(ended) {
			<-ended
		}
	})
}

// Otherwise the lock would be free for most of the time while both rest.
func TestTwoSessionsThatTakeTurnsDoNotRestLongerThanTheOtherHasItsTurn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.Net.SetDelay(50 * time.Microsecond)
		ctx, cancel := context.WithTimeout(bg, time.Second/10)
		defer cancel()
		var cycles [2]atomic.Int64
		var wg sync.WaitGroup
		for i := range cycles {
			m := redisson.New(testlock.NewSession(t, w.Client), "x")
			for range 4 {
				wg.Go(func() {
					for testlock.Cycle(ctx, m) == nil {
						cycles[i].Add(1)
					}
				})
			}
		}
		wg.Wait()
		a, b := cycles[0].Load(), cycles[1].Load()
		if a+b < 320 || min(a, b) < max(a, b)/2 { // if each rested for the whole time, there would be 170
			t.Errorf("%d and %d turns", a, b)
		}
	})
}

// The name is the key, so a program may have a hash of its own there. No session would ever release it.
func TestAHashThatNeverExpiresIsAnErrorThatNamesItsKey(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.HSet("x", "foo", "bar")
		m := redisson.New(testlock.NewSession(t, w.Client), "x")
		for name, acquire := range map[string]func() error{
			"Lock":    func() error { return testlock.Cycle(testlock.Bounded(t), m) },
			"TryLock": func() error { _, _, err := m.TryLock(testlock.Bounded(t)); return err },
		} {
			err := acquire()
			if err == nil || !strings.Contains(err.Error(), `the key "x" has "bar" in its field "foo"`) ||
				!strings.Contains(err.Error(), ", a hold that never expires, ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.Del("x")
		testlock.Works(t, m)
	})
}

package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// waiting is a call of Lock that waits, with its session and the network of its session.
type waiting struct {
	got    <-chan testlock.Grant
	cancel func()
	s      *rlock.Session
	net    *faultproxy.Proxy
}

// The first waiters in the queue know when the lease ends, but leave before. The next waiter must then send a
// request when the lease ends. In this test, no waiter sends heartbeats. Proves: wake-ups
func TestTheNextInTheQueueLooksWhenTheFirstHaveLeft(t *testing.T) {
	const lease = 4 * time.Second
	longLiveness, short := rlock.WithWaiterTimeout(3*time.Hour), rlock.WithWatchdogTimeout(lease)
	holders := map[string]func(t *testing.T, w *testlock.Wire, l func(rlock.Client) rlock.Locker){
		"has unlocked": func(t *testing.T, w *testlock.Wire, l func(rlock.Client) rlock.Locker) {
			_, hold := testlock.Lock(t, l(w.Client), bg, rlock.HoldAtLeast(lease))
			time.AfterFunc(time.Second, func() { testlock.Unlock(t, hold) })
		},
		"has died": func(t *testing.T, w *testlock.Wire, l func(rlock.Client) rlock.Locker) {
			net := faultproxy.InMemory(t, w.Dial)
			testlock.Keep(t, testlock.Take(t, l(net.Client(t))))
			net.Refuse(true)
		},
	}
	givesUp, closes := func(w waiting) { w.cancel() }, func(w waiting) { _ = w.s.Close() }
	losesConnections := func(w waiting) { w.net.Refuse(true) }
	leaves := map[string][]func(w waiting){ // losing two connections would need heartbeats
		"two give up":               {givesUp, givesUp},
		"two close":                 {closes, closes},
		"one loses its connections": {losesConnections},
		"one gives up, the next loses its connections": {givesUp, losesConnections},
	}
	wait := func(t *testing.T, w *testlock.Wire, newLocker func(*rlock.Session) rlock.Locker) waiting {
		ctx, cancel := context.WithCancel(bg)
		net := faultproxy.InMemory(t, w.Dial)
		s := testlock.NewSession(t, net.Client(t), longLiveness)
		return waiting{testlock.Join(ctx, newLocker(s)), cancel, s, net}
	}
	for kind, newLocker := range queued {
		for holder, hold := range holders {
			for how, leave := range leaves {
				t.Run(kind+" "+holder+", "+how, func(t *testing.T) {
					testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
						start := time.Now()
						hold(t, w, func(c rlock.Client) rlock.Locker {
							return newLocker(testlock.NewSession(t, c, short))
						})
						var all []waiting
						for range 4 {
							all = append(all, wait(t, w, newLocker))
						}
						gone := len(leave)
						for i, one := range all[:gone] {
							time.Sleep(time.Second)
							leave[i](one)
						}
						next := testlock.Granted(t, all[gone].got)
						if took := time.Since(start); took > lease+300*time.Millisecond {
							t.Errorf("a lease of %v has ended, and the next had it after %v", lease, took)
						}
						testlock.Unlock(t, next)
						for _, one := range all[gone+1:] {
							testlock.Served(t, one.got)
						}
						for _, one := range all[:gone] {
							one.cancel()
							<-one.got
						}
					})
				})
			}
		}
	}
}

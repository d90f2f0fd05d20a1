package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALaneIsForgottenWhenNobodyUsesIt(t *testing.T) {
	l := &lockState{kind: &Kind{}, s: newSession(t)}
	fx := l.begin()
	defer fx.unlock()
	w := Want{N: 1, Limit: 3}
	ln := l.laneFor(w, &fx)
	if l.laneFor(w, &fx) != ln || l.laneFor(Want{N: 2, Limit: 3}, &fx) == ln {
		t.Error("what is wanted alike has one lane, and other things have others")
	}
	ln.numQueued = 1 // keeps the lane from beginning an attempt
	ln.waiters, ln.numGrants = append(ln.waiters, new(waiter)), 1
	for _, end := range []func(){func() { ln.remove(ln.waiters[0]) }, func() { ln.numGrants-- }} {
		l.settle(&fx)
		if l.findLane(w) != ln {
			t.Error("a lane that is used is forgotten")
		}
		end()
	}
	l.settle(&fx)
	if len(l.lanes) != 0 {
		t.Error("a lane that nobody uses is kept")
	}
}

// If the clock of a server was set back, the time in a message does not show that the grant has ended.
func TestAMessageOfAGrantThatIsOverIsIgnored(t *testing.T) {
	l := &lockState{s: newSession(t)}
	a := &attempt{lane: &lane{l: l}, state: queued, lastRefused: 7}
	for _, token := range []int64{0, 7} {
		fx := l.begin()
		// This would panic if it counted as a grant, because there is no registry.
		a.onGrantNotice(token, time.Now(), time.Minute, &fx)
		fx.unlock()
	}
}

// In a busy session, a release is always in flight. A TryLock must not send a request after each of them.
func TestATryIsSentAgainOncePerReleaseThatWasInFlightAtItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, releases := make(chan struct{}, 10), make(chan struct{})
		replies := make(chan string, 10)
		client := fake.Client(t, func(c fake.Call) (string, error) {
			if c.Is(acquireScript) {
				requests <- struct{}{}
				return <-replies, nil
			}
			<-releases
			return "R", nil
		})
		ctx, want := context.Background(), Want{N: 1, Limit: 3}
		m := New(fake.Session(t, client), &Kind{Letter: protocol.Semaphore}, "x", Config{})
		var holds []*handle.Hold
		for i := range 3 {
			replies <- fmt.Sprintf("G 1000000 %d", i+1)
			_, hold, err := m.Acquire(ctx, want, Config{}, false)
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, hold)
			<-requests
		}
		for range 5 {
			replies <- "Q 1000000 60000 other:1 9\nme"
		}
		unlock := func(i int) {
			go func() { _ = holds[i].Unlock(ctx) }()
			synctest.Wait()
		}
		unlock(0)
		refused := make(chan error, 1)
		go func() {
			_, _, err := m.Acquire(ctx, want, Config{}, true)
			refused <- err
		}()
		synctest.Wait()
		for next := range 2 { // one more release begins before the present one ends
			unlock(next + 1)
			releases <- struct{}{}
			synctest.Wait()
		}
		if n := len(requests); n != 2 {
			t.Errorf("the try has sent its request %d times, want 2", n)
		}
		releases <- struct{}{}
		if err := <-refused; !errors.Is(err, failure.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
	})
}

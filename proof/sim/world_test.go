package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/proof/simnet"
	"github.com/lockline/lockline/rlock"
)

// forgetful makes a world in which an attempt has a RedLock on three servers with these leases. After the
// time after, it calls forgetOne. It returns the numbers of the servers that have the lock soon after that.
func forgetful(t *testing.T, leases [3]time.Duration, after time.Duration) (on []int) {
	synctest.Test(t, func(*testing.T) {
		redlock3 := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == "redlock3" })
		w := newWorld(Kinds[redlock3], 1, &Counts{})
		for i := range w.Kind.servers {
			w.servers = append(w.servers, newServer(w, i, simnet.Faults{}, w.rand(0)))
			defer w.servers[i].Close()
		}
		l := newLock(w, w.Kind.locks[0])
		w.locks = append(w.locks, l)
		for i, s := range l.on {
			ends := s.tick() + leases[i].Microseconds()
			s.HSet(l.key, "owner", "session:1", "ends", fmt.Sprint(ends), "token", "1000")
			l.owners[i] = "session:1"
		}
		l.considered[&held{attempt: holderOf("session:1"), hold: new(rlock.Hold)}] = struct{}{}
		time.Sleep(after)
		go w.forgetOne(w.rand(1))
		time.Sleep(400 * time.Millisecond)
		w.mu.Lock()
		w.ending = true
		for i, s := range l.on {
			if owner, _ := l.present(s); owner != "" {
				on = append(on, i)
			}
		}
		w.mu.Unlock()
		time.Sleep(time.Second) // until all goroutines have ended
	})
	return on
}

// If the lease of a hold has ended on one server, forgetOne must choose no other server, even if no request
// has shown the loss yet. Otherwise two of three servers would lack the hold, which no RedLock survives.
func TestNoServerForgetsWhatAMajorityThenLacks(t *testing.T) {
	if on := forgetful(t, [3]time.Duration{time.Second, 3 * time.Second, 3 * time.Second},
		1500*time.Millisecond); len(on) != 2 {
		t.Errorf("after the lease of server 0 the lock is on %v, not on 1 and 2", on)
	}
}

// forgetOne must choose the server on which the lease of the hold ends first. When this lease has ended, the
// holder may still count on the two other servers.
func TestTheServerForgetsWhereTheLeaseEndsFirst(t *testing.T) {
	for first := range 3 {
		leases := [3]time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}
		leases[first] = 2 * time.Second
		if on := forgetful(t, leases, 0); len(on) != 2 || on[0] == first || on[1] == first {
			t.Errorf("the lease ends first on server %d, and the lock is on %v", first, on)
		}
	}
}

// A server that has lost a RedLock grants a lease of its own at the next request. So the deadline of the
// hold, which is the median of the leases, may become earlier. If no server has lost the RedLock, the
// deadline must not become earlier.
func TestAServerThatForgotExcusesAnEarlierDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, hold, err := rlock.New(locktest.NewSession(t), "x").Lock(t.Context(), rlock.WithLease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hold.Unlock(context.Background()) }()
		l := &lock{}
		e := &entry{hold: hold, locks: []*lock{l}, parts: []*held{{since: time.Now()}}}
		deadline := hold.Deadline()
		if e.shortened(deadline) || !e.shortened(deadline.Add(time.Millisecond)) {
			t.Error("the deadline is not compared with the earlier one")
		}
		l.forgotAt = time.Now().Add(time.Millisecond)
		if e.shortened(deadline.Add(time.Millisecond)) {
			t.Error("a server has lost the lock since it was granted")
		}
	})
}

// When the clock of a server is set back, keys live longer by the same time, as in Redis.
func TestKeysLiveLongerByAsMuchAsTheClockIsSetBack(t *testing.T) {
	const lease, back = time.Second, 7 * time.Second
	for _, after := range []time.Duration{0, lease / 2} { // at the beginning and in the middle of the lease
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Kinds[0], 1, &Counts{})
			s := newServer(w, 0, simnet.Faults{}, w.rand(0))
			s.rate = 1
			defer s.Close()
			s.tick()
			s.HSet("x", "a", "b")
			s.SetTTL("x", lease)
			s.HSet("forever", "a", "b")
			time.Sleep(after)
			before := s.tick()
			s.setBack(back)
			if d := before - s.tick(); d != back.Microseconds() {
				t.Errorf("the clock was set back by %d us", d)
			}
			time.Sleep(lease + back - after - time.Millisecond)
			if s.tick(); !s.Exists("x") {
				t.Error("the key is gone too early")
			}
			time.Sleep(2 * time.Millisecond)
			if s.tick(); s.Exists("x") || !s.Exists("forever") {
				t.Errorf("what is left: %q", s.Keys())
			}
		})
	}
}

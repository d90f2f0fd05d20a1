package multilock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The requests of ForceUnlockToken arrive after the holder has unlocked, and another process has acquired the
// lock. Proves: forced unlock
func TestAForcedUnlockByTokenThatComesLateEndsNoNewerHold(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		ops, one, other := r.warm(t), r.warm(t), r.warm(t)
		hold := testlock.Take(t, one)
		for _, w := range r {
			w.Net.OnRequest(holds("force"))
		}
		if freed, err := ops.ForceUnlockToken(bg, hold.Token()); freed || err == nil {
			t.Errorf("without a reply: %v, %v", freed, err)
		}
		testlock.Unlock(t, hold)
		newer := testlock.Take(t, other)
		for _, w := range r {
			if len(w.Net.Held()) == 0 {
				t.Error("a server got no request")
			}
			for _, q := range w.Net.Held() {
				testlock.Must(t, w.Net.Release(q))
			}
			w.Net.OnRequest(nil)
		}
		time.Sleep(2 * renewal)
		if n := r.held(); n != 3 || newer.Err() != nil {
			t.Errorf("the newer hold is on %d of 3 servers: %v", n, newer.Err())
		}
		testlock.Unlock(t, newer)
	})
}

// The clock of one server is behind, so its token of the newer hold is below the token of the older hold.
// The older hold was on the other two servers.
// Proves: forced unlock
func TestAForcedUnlockByTokenLeavesANewerHoldItsServerWithALowerToken(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		r[2].SetTime(time.Now().Add(-time.Hour))
		ops, one := r.warm(t), r.warm(t)
		r[2].Net.Refuse(true)
		time.Sleep(time.Second)
		hold := testlock.Take(t, one)
		seen := testlock.Inspect(t, ops).Token
		testlock.Unlock(t, hold)
		r[2].Net.Refuse(false)
		time.Sleep(time.Second)
		newer := testlock.Take(t, one)
		// SetTime has stopped the clock of the last server, so no lease ends there.
		held := func() bool { return r[:2].held() == 2 && r[2].HGet(redKey, "owner") != "" }
		if !held() || stored(r[2]) >= seen {
			t.Fatalf("held by %q, the last one with token %d, after %d", r.holders(), stored(r[2]), seen)
		}
		if freed, err := ops.ForceUnlockToken(bg, seen); freed || err != nil {
			t.Errorf("ForceUnlockToken of the older hold: %v, %v", freed, err)
		}
		time.Sleep(2 * renewal)
		if !held() || newer.Err() != nil {
			t.Errorf("the newer hold is not on all servers: %v", newer.Err())
		}
		testlock.Unlock(t, newer)
	})
}

// The tokens of the servers are an hour apart, and one server is down. Both others have to be freed, because
// the holder keeps its part on the third one until the lease ends.
// Proves: forced unlock
func TestAForcedUnlockByTokenEndsAHoldThoughOneServerIsDown(t *testing.T) {
	for down := range 3 {
		withServers(t, 3, func(t *testing.T, r servers) {
			for i, w := range r {
				remembers(w, micro(time.Duration(i)*time.Hour))
			}
			ops := r.warm(t)
			ctx, hold := testlock.Lock(t, r.redLock(t), bg)
			r[down].Net.Refuse(true)
			time.Sleep(time.Second)
			if freed, err := ops.ForceUnlockToken(bg, testlock.Inspect(t, ops).Token); !freed || err != nil {
				t.Errorf("without server %d: %v, %v", down, freed, err)
			}
			if n := r.held(); n != 1 {
				t.Errorf("without server %d: it is on %d servers", down, n)
			}
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took > renewal {
				t.Errorf("without server %d: the holder learned of it after %v", down, took)
			}
			testlock.WantError(t, "Unlock of what was forced", hold.Unlock(bg), rlock.ErrLost)
			r[down].Net.Refuse(false)
		})
	}
}

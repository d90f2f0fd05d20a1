package fairlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Nobody unlocks: each waiter must have the lock for the lease that it asked for, from its grant on, and not
// for its liveness time, be that longer or shorter. Proves: exclusion
func TestAWaiterGetsTheLeaseThatItAskedForCountedFromItsGrant(t *testing.T) {
	const waiters = 4
	for name, c := range map[string]struct {
		sessions int
		lease    time.Duration
	}{
		"of one session":           {1, 1500 * time.Millisecond},
		"of many sessions":         {waiters, 1500 * time.Millisecond},
		"longer than its liveness": {waiters, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				all := make([]*rlock.Mutex, c.sessions)
				for i := range all {
					all[i] = w.lock()
				}
				first := testlock.Take(t, all[0])
				var waits []<-chan testlock.Grant
				for i := range waiters {
					waits = append(waits, testlock.Join(bg, all[i%c.sessions], rlock.WithLease(c.lease)))
				}
				testlock.Unlock(t, first)
				for i, got := range waits {
					if i > 0 {
						time.Sleep(c.lease * 9 / 10)
						testlock.Waiting(t, "one behind a lease that lasts", got)
						time.Sleep(c.lease / 10)
					}
					synctest.Wait()
					granted := time.Now()
					hold := (<-got).Hold
					testlock.Keep(t, hold)
					time.Sleep(10 * time.Millisecond)
					if left := w.lease(); left > c.lease || left < c.lease*9/10 {
						t.Errorf("number %d: Redis keeps it for another %v", i, left)
					}
					if valid := hold.Deadline().Sub(granted); valid > c.lease || valid < c.lease*9/10 {
						t.Errorf("number %d is valid for %v", i, valid)
					}
				}
			})
		})
	}
}

// A MultiLock is over with the first of its leases, and then none of its members stays taken.
func TestAFairMemberOfAMultiLockEndsWithItsLease(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		const lease = 500 * time.Millisecond
		other, s := w.lock(), testlock.NewSession(t, w.Client)
		first := testlock.Take(t, other)
		waits := testlock.Join(bg, multilock.New(rlock.New(s, "y"), fairlock.New(s, "x")),
			rlock.WithLease(lease))
		testlock.Unlock(t, first)
		got := testlock.Receive(t, "the grant", waits)
		testlock.Must(t, got.Err)
		testlock.Keep(t, got.Hold)
		if left := w.lease(); left > lease {
			t.Errorf("the fair member stays taken, for another %v", left)
		}
		<-got.Ctx.Done()
		testlock.Works(t, other)
	})
}

// Where Redis answers, Lock returns when its place is given up: nobody is handed the lock afterwards.
// Proves: no trace
func TestAWaiterThatGaveUpIsNotHandedTheLock(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, waiter, third := w.lock(), w.lock(), w.lock()
		w.Net.SetDelay(time.Millisecond)
		for i := range 100 {
			hold := testlock.Take(t, holder)
			wait := time.Duration(i) * 100 * time.Microsecond // which is over at each step of a wait
			ctx, cancel := context.WithTimeout(bg, wait)
			options := []rlock.Option{rlock.WaitAtMost(time.Hour)}
			if i%2 == 0 && wait >= time.Millisecond { // the least
				options = []rlock.Option{rlock.WaitAtMost(wait)}
			}
			_, _, err := waiter.Lock(ctx, options...)
			cancel()
			if err == nil {
				t.Fatal("two hold it")
			}
			testlock.Unlock(t, hold)
			_, next := testlock.TryLock(t, third, bg)
			testlock.Unlock(t, next)
		}
	})
}

// The lock is free and its queue is not, as after a DEL by hand. The release that finds it so hands it on.
// Proves: wake-ups
func TestAReleaseThatFindsTheLockGoneHandsItOn(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		hold := testlock.Take(t, w.lock())
		waits := testlock.Join(bg, w.lock(longLiveness))
		w.Del(lockKey)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Served(t, waits)
	})
}

// An operator has taken the expiry from the lock's key. A hold without a lease, whose message is lost, too,
// must not keep the lock forever. The lease does not depend on the expiry, which the key gets again.
func TestALockWhoseKeyDoesNotExpireIsFreeAfterTheLease(t *testing.T) {
	for name, ends := range map[string]time.Duration{"a lease": time.Second, "a lease of the past": -1} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				first := testlock.Take(t, w.lock())
				waits := testlock.Join(bg, w.lock())
				testlock.Must(t, w.Client.Persist(bg, lockKey).Err())
				w.HSet(lockKey, "owner", "another:1", "ends", fmt.Sprint(time.Now().Add(ends).UnixMicro()))
				testlock.Served(t, waits)
				testlock.WantError(t, "Unlock", first.Unlock(bg), rlock.ErrLost)
				time.Sleep(2 * time.Minute)
				testlock.Works(t, w.lock())
				if left := w.TTL(lockKey); left <= 0 {
					t.Error("the key does not expire")
				}
			})
		})
	}
}

// Redis writes the message first that a script has published last, and each write takes an idle server some
// 30 us. So the hint to the waiter behind the new holder is published before the grant.
func TestTheGrantIsPublishedBehindTheHint(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		first := testlock.Take(t, w.lock())
		one, two := testlock.Join(bg, w.lock()), testlock.Join(bg, w.lock())
		sub := w.Client.PSubscribe(bg, "lockline:s:*")
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(bg)
		testlock.Must(t, err)
		testlock.Unlock(t, first)
		for _, want := range []int{2, 5} { // 'OWNER LEASE', and 'OWNER TOKEN NOW LEASE NONCE'
			m, err := sub.ReceiveMessage(bg)
			testlock.Must(t, err)
			if n := len(strings.Fields(m.Payload)); n != want {
				t.Errorf("a message of %d words, want %d", n, want)
			}
		}
		testlock.Served(t, one, two)
	})
}

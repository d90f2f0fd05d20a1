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

// Nobody unlocks. Each waiter must hold the lock for the lease that it has requested, from its grant on. The
// waiter timeout, longer or shorter, must not matter. Proves: exclusion
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

// The hold of a MultiLock ends with the first of its leases. Then none of its members may stay taken.
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

// If Redis answers, Lock returns after the waiter has left the queue. So the lock is not handed over to it
// later. Proves: no trace
func TestAWaiterThatGaveUpIsNotHandedTheLock(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, waiter, third := w.lock(), w.lock(), w.lock()
		w.Net.SetDelay(time.Millisecond)
		for i := range 100 {
			hold := testlock.Take(t, holder)
			wait := time.Duration(i) * 100 * time.Microsecond // ends at each step of a wait
			ctx, cancel := context.WithTimeout(bg, wait)
			options := []rlock.Option{rlock.WaitAtMost(time.Hour)}
			if i%2 == 0 && wait >= time.Millisecond { // the minimum of WaitAtMost
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

// The hash of the lock is missing, for example after a DEL by hand, but the queue has waiters. A release that
// finds this hands the lock over. Proves: wake-ups
func TestAReleaseThatFindsTheLockGoneHandsItOn(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		hold := testlock.Take(t, w.lock())
		waits := testlock.Join(bg, w.lock(longLiveness))
		w.Del(lockKey)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Served(t, waits)
	})
}

// An operator has made the lock's key persistent, and the message about the grant is lost, too. The lock must
// be free when the lease has ended, because the lease does not depend on the key's expiry. Later, the key
// expires again.
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

// Redis sends the message first that a script has published last. Each send takes an idle server about 30 us.
// So the script publishes the hint to the next waiter first, and then the grant.
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

package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Nobody unlocks: each waiter must have the lock for the lease that it asked for, from its grant on, and not for the
// liveness time, which is 10 s.
func TestAWaiterGetsTheLeaseThatItAskedForCountedFromItsGrant(t *testing.T) {
	t.Parallel()
	const waiters, lease = 4, 1500 * time.Millisecond
	for name, sessions := range map[string]int{"of one session": 1, "of many sessions": waiters} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
				t.Parallel()
				var all []*rlock.Session
				for range sessions {
					all = append(all, testlock.NewSession(t, rdb))
				}
				first := testlock.Take(t, fairlock.New(all[0], "x"), rlock.WithLease(5*time.Second))
				l := newLine(t, rdb)
				for i := range waiters {
					l.join(fairlock.New(all[i%sessions], "x"), i, rlock.WithLease(lease))
				}
				testlock.Unlock(t, first)
				for i := range waiters {
					got := l.next()
					if got.who != i {
						t.Errorf("waiter %d is served as number %d", got.who, i)
					}
					if left := time.Until(got.hold.Deadline()); left > lease {
						t.Errorf("its hold is valid for another %v", left)
					}
					if left := rdb.PTTL(bg, lockKey).Val(); left > lease {
						t.Errorf("Redis keeps it for another %v", left)
					}
				}
			})
		})
	}
}

// A lease that is longer than the liveness time is the waiter's in the end, too.
func TestAWaiterGetsALeaseThatIsLongerThanItsLiveness(t *testing.T) {
	t.Parallel()
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		const lease = time.Minute
		first := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
		l := newLine(t, rdb)
		l.join(fairlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(3*time.Second)), "x"), 0, rlock.WithLease(lease))
		testlock.Unlock(t, first)
		hold := l.next().hold
		testlock.Eventually(t, "it has the lease that it asked for", func() bool {
			left := rdb.PTTL(bg, lockKey).Val()
			if left > lease || time.Until(hold.Deadline()) > lease {
				t.Fatalf("it has the lock for %v, in Redis for %v", time.Until(hold.Deadline()), left)
			}
			return left > lease/2 && time.Until(hold.Deadline()) > lease/2
		})
		testlock.Unlock(t, hold)
	})
}

// A MultiLock is over with the first of its leases, and then none of its members stays taken.
func TestAFairMemberOfAMultiLockEndsWithItsLease(t *testing.T) {
	t.Parallel()
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		const lease = 500 * time.Millisecond
		other := testlock.NewSession(t, rdb)
		first := testlock.Take(t, fairlock.New(other, "x"))
		s := testlock.NewSession(t, rdb)
		got := make(chan context.Context, 1)
		go func() {
			ctx, _, err := multilock.New(rlock.New(s, "y"), fairlock.New(s, "x")).Lock(bg, rlock.WithLease(lease))
			if err != nil {
				t.Error(err)
			}
			got <- ctx
		}()
		testlock.Eventually(t, "in the queue", func() bool { return queued(t, rdb) == 1 })
		testlock.Unlock(t, first)
		ctx := <-got
		if left := rdb.PTTL(bg, lockKey).Val(); left > lease {
			t.Errorf("the fair member stays taken, for another %v", left)
		}
		<-ctx.Done()
		testlock.Works(t, fairlock.New(other, "x"))
	})
}

// Where Redis answers, Lock returns when its place is given up: nobody is handed the lock afterwards.
func TestAWaiterThatGaveUpIsNotHandedTheLock(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		holder, waiter, third := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		for i := range 100 {
			hold := testlock.Take(t, fairlock.New(holder, "x"))
			ctx, cancel := context.WithTimeout(bg, time.Duration(i)*100*time.Microsecond)
			options := []rlock.Option{rlock.WaitAtMost(time.Hour)}
			if i%2 == 0 {
				options = []rlock.Option{rlock.WaitAtMost(time.Duration(i) * 100 * time.Microsecond)}
			}
			begun := time.Now()
			_, _, err := fairlock.New(waiter, "x").Lock(ctx, options...)
			cancel()
			if err == nil {
				t.Fatal("two hold it")
			}
			testlock.Unlock(t, hold)
			take := fairlock.New(third, "x").TryLock
			if time.Since(begun) > 100*time.Millisecond { // Lock did not wait until the place was given up
				take = fairlock.New(third, "x").Lock
			}
			_, next, err := take(bg)
			if err != nil {
				t.Fatalf("after a wait of %v: %v", time.Duration(i)*100*time.Microsecond, err)
			}
			testlock.Unlock(t, next)
		}
	})
}

// Redis does not answer, and the client would wait for it for longer than this test does: Lock returns all the same.
func TestGivingUpAPlaceDoesNotWaitForARedisThatStandsStill(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	s := testlock.NewSession(t, server.Client(t, func(o *redis.Options) { o.ReadTimeout = 10 * testlock.Patience }))
	go func() {
		_, _, err := fairlock.New(s, "x").Lock(ctx)
		done <- err
	}()
	testlock.Eventually(t, "in the queue", func() bool { return queued(t, rdb) == 1 })
	server.Freeze()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(testlock.Patience):
		t.Error("Lock waits for Redis")
	}
	server.Thaw()
	testlock.Eventually(t, "the place is given up all the same", func() bool { return queued(t, rdb) == 0 })
	testlock.Unlock(t, hold)
}

// With the right to publish alone, and with what PUBSUB CHANNELS shows and what can be guessed, nobody can make a waiter
// enter.
func TestAForgedMessageGrantsNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	forger := testlock.User(t, server, "forger", "&*", "+publish", "+hello", "+auth", "+pubsub")
	hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
	l := newLine(t, rdb)
	l.join(fairlock.New(testlock.NewSession(t, rdb), "x"), 0)
	var channels []string
	testlock.Eventually(t, "the session listens", func() bool {
		channels = forger.PubSubChannels(bg, "lockline:s:*").Val()
		return len(channels) == 1
	})
	session := strings.TrimPrefix(channels[0], "lockline:s:")
	now := time.Now().UnixMicro()
	for attempt := range 20 {
		for _, rest := range []string{"9000000000000000", fmt.Sprint(now), fmt.Sprintf("%d %d 10000", now, now), fmt.Sprintf("%d %d 10000 ", now, now),
			fmt.Sprintf("%d %d 10000 AAAAAAAAAAAAAAAA", now, now), fmt.Sprintf("%d %d 10000 nonce more", now, now), "- - - -", "inf inf inf inf"} {
			for _, owner := range []string{session, strings.Repeat("x", 100000), ""} {
				testlock.Must(t, forger.Publish(bg, channels[0], fmt.Sprintf("%s:%d %s", owner, attempt, rest)).Err())
			}
		}
	}
	select {
	case a := <-l.got:
		t.Fatalf("granted with %d by a forged message: %v", a.hold.Token(), a.err)
	case <-time.After(200 * time.Millisecond):
	}
	testlock.Unlock(t, hold)
	next := l.next()
	if next.hold.Token() <= hold.Token() {
		t.Errorf("%d after %d", next.hold.Token(), hold.Token())
	}
	testlock.Unlock(t, next.hold)
}

// What one holder made of its lease is not the next one's.
func TestALeaseThatWasExtendedIsNotHandedOn(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		s := testlock.NewSession(t, rdb)
		first := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
		l := newLine(t, rdb)
		for i := range 2 { // of one group
			l.join(fairlock.New(s, "x"), i)
		}
		testlock.Unlock(t, first)
		one := l.next().hold
		testlock.Must(t, one.Extend(bg, time.Hour))
		testlock.Unlock(t, one)
		two := l.next().hold
		if left := rdb.PTTL(bg, lockKey).Val(); left > time.Minute {
			t.Errorf("the next holder's lease is %v", left)
		}
		if left := time.Until(two.Deadline()); left > time.Minute {
			t.Errorf("the next hold is valid for %v", left)
		}
		testlock.Unlock(t, two)
	})
}

// The lock is free and its queue is not, as after a DEL by hand. The release that finds it so hands it on.
func TestAReleaseThatFindsTheLockGoneHandsItOn(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
		l := newLine(t, rdb)
		l.join(fairlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(time.Hour)), "x"), 0) // it would look for itself after 20 minutes
		testlock.Must(t, rdb.Del(bg, lockKey).Err())
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Unlock(t, l.next().hold)
	})
}

// An operator has taken the expiry from the lock's key, and the message of the grant is lost. The grant cannot be used, for nobody
// knows until when; it must be given back, or nobody would have the lock again.
func TestAGrantWithoutAnExpiryIsGivenBack(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		first := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
		l := newLine(t, rdb)
		l.join(fairlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(600*time.Millisecond)), "x"), 0)
		waiter := rdb.ZRange(bg, queueKey, 0, 0).Val()[0]
		_, err := rdb.TxPipelined(bg, func(p redis.Pipeliner) error {
			p.Del(bg, lockKey, queueKey, aliveKey, aboutKey)
			p.HSet(bg, lockKey, waiter, 1, "t", time.Now().UnixMicro(), "s", 0, "d", "")
			return nil
		})
		testlock.Must(t, err)
		testlock.Unlock(t, l.next().hold)
		_ = first.Unlock(bg)
	})
}

// Redis writes the message first that a script has published last, and each write takes an idle server some 30 us. So the hint to the
// waiter behind the new holder is published before the grant.
func TestTheGrantIsPublishedBehindTheHint(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	first := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
	l := newLine(t, rdb)
	for i := range 2 {
		l.join(fairlock.New(testlock.NewSession(t, rdb), "x"), i)
	}
	all := rdb.PSubscribe(bg, "lockline:s:*")
	defer func() { _ = all.Close() }()
	_, err := all.Receive(bg)
	testlock.Must(t, err)
	testlock.Unlock(t, first)
	var words []int
	for range 2 {
		m, err := all.ReceiveMessage(bg)
		testlock.Must(t, err)
		words = append(words, len(strings.Fields(m.Payload)))
	}
	if words[0] != 2 || words[1] != 5 { // 'OWNER LEASE', and 'OWNER TOKEN NOW LEASE NONCE'
		t.Errorf("messages of %v words, want 2 and 5", words)
	}
	for range 2 {
		testlock.Unlock(t, l.next().hold)
	}
}

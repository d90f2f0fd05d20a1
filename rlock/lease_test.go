package rlock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// wire is an in-memory server in fake time, whose network can be cut.
type wire struct {
	*miniredis.Miniredis
	rdb   *redis.Client
	down  atomic.Bool  // silent: requests are read and never answered
	delay atomic.Int64 // of each request and each reply
	wrote atomic.Int64 // writes of clients
}

// wireConn swallows what is written while the wire is down.
type wireConn struct {
	net.Conn
	w *wire
}

func (c wireConn) Write(p []byte) (int, error) {
	c.w.wrote.Add(1)
	time.Sleep(time.Duration(c.w.delay.Load()))
	if c.w.down.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(time.Duration(c.w.delay.Load()))
	return n, err
}

// simulated runs a test in fake time: hours cost nothing, and instants are exact.
func simulated(t *testing.T, test func(t *testing.T, w *wire)) {
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, true)
		t.Cleanup(func() { bubbles.Delete(t) })
		w := &wire{Miniredis: miniredis.NewMiniRedis()}
		w.ClockTTL(true)
		t.Cleanup(w.Miniredis.Close)
		w.rdb = redis.NewClient(&redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				c, err := w.Dial()
				return wireConn{c, w}, err
			},
			Addr:        "127.0.0.1:1", // never dialed, but looked up
			ReadTimeout: 500 * time.Millisecond,
			PoolTimeout: 100 * time.Millisecond,
		})
		t.Cleanup(func() { _ = w.rdb.Close() })
		test(t, w)
	})
}

func TestALeaseIsRenewedForAsLongAsItsHolderLives(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, hold := lock(t, m, bg)
		for range 3 * 60 {
			time.Sleep(time.Minute + 13*time.Millisecond) // not the instant of a renewal
			st := inspect(t, m)
			// Renewed at a third: never less than two thirds are left, less the batching of renewals.
			if ctx.Err() != nil || !st.Held || st.Remaining < 20*time.Second || time.Until(hold.Deadline()) < 19*time.Second {
				t.Fatalf("%v, %+v, deadline in %v", context.Cause(ctx), st, time.Until(hold.Deadline()))
			}
			if hold.Deadline().After(time.Now().Add(st.Remaining)) {
				t.Fatal("the holder believes longer than Redis")
			}
		}
		unlock(t, hold)
		// An hour later nothing is renewed, and nothing is left.
		time.Sleep(time.Hour)
		if keys := w.Keys(); len(keys) != 0 {
			t.Errorf("left behind: %q", keys)
		}
	})
}

func TestAHoldEndsAtItsDeadlineAndBeforeRedisFreesIt(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, hold := lock(t, m, bg)
		start := time.Now()
		w.down.Store(true)
		<-ctx.Done()
		// Nothing in the simulation takes time: the margin is exactly 1 % and 2 ms.
		if took, want := time.Since(start), 30*time.Second-300*time.Millisecond-2*time.Millisecond; took != want {
			t.Errorf("its context ended after %v, want %v", took, want)
		}
		if !w.Exists("lockline:r:{x}") {
			t.Error("Redis freed it before its holder knew")
		}
		if context.Cause(ctx) != rlock.ErrLost || !errors.Is(hold.Err(), rlock.ErrLost) {
			t.Errorf("cause %v, Err %v", context.Cause(ctx), hold.Err())
		}
		w.down.Store(false)
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestAFixedLeaseRunsOutAndIsNotRenewed(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, hold := lock(t, m, bg, rlock.WithLease(10*time.Second))
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != 10*time.Second-102*time.Millisecond {
			t.Errorf("ended after %v", took)
		}
		// Who waits for it gets it when Redis lets it go.
		_, next := lock(t, m, bg)
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+50*time.Millisecond {
			t.Errorf("the next one got it after %v", took)
		}
		if next.Token() <= hold.Token() {
			t.Errorf("token %d after %d", next.Token(), hold.Token())
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock of the late one: %v", err)
		}
		if st := inspect(t, m); st.Token != next.Token() || next.Err() != nil {
			t.Errorf("the late Unlock freed somebody else's lock: %+v", st)
		}
		unlock(t, next)
	})
}

// The graveyard: locks whose every entry sets the lease lose what an outer layer had asked for.
func TestReentryNeverShortensALease(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, outer := lock(t, m, bg, rlock.WithLease(time.Minute))
		_, inner := lock(t, m, ctx, rlock.WithLease(time.Second))
		if st := inspect(t, m); st.Remaining != time.Minute || time.Until(inner.Deadline()) < 59*time.Second {
			t.Errorf("%+v, deadline in %v", st, time.Until(inner.Deadline()))
		}
		unlock(t, inner)
		_, inner = lock(t, m, ctx, rlock.WithLease(2*time.Minute))
		if st := inspect(t, m); st.Remaining != 2*time.Minute {
			t.Errorf("a longer lease was not taken: %+v", st)
		}
		unlock(t, inner)
		unlock(t, outer)
	})
}

func TestANestedHoldWithoutALeaseOfItsOwnIsRenewed(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, outer := lock(t, m, bg, rlock.WithLease(5*time.Second))
		_, inner := lock(t, m, ctx)
		time.Sleep(10 * time.Minute)
		if outer.Err() != nil || inner.Err() != nil {
			t.Fatalf("lost under a hold that is renewed: %v, %v", outer.Err(), inner.Err())
		}
		unlock(t, inner)
		<-ctx.Done() // from here on nobody renews
		if !errors.Is(outer.Err(), rlock.ErrLost) {
			t.Errorf("renewed after the renewed hold ended: %v", outer.Err())
		}
	})
}

func TestExtendLengthensTheLeaseAndNeverShortensIt(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		ctx, hold := lock(t, m, bg, rlock.WithLease(10*time.Second))
		if err := hold.Extend(bg, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := hold.Extend(bg, time.Second); err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, m); st.Remaining != time.Minute {
			t.Errorf("%+v", st)
		}
		time.Sleep(59 * time.Second)
		if hold.Err() != nil {
			t.Errorf("lost before the extended lease was over: %v", hold.Err())
		}
		<-ctx.Done()
		if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Extend of a lost hold: %v", err)
		}
	})
}

func TestAWaiterGetsTheLockOfADeadHolderWhenItsLeaseEnds(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		// What a process leaves that died.
		w.HSet("lockline:r:{x}", "5f1c5ba6-0000-4000-8000-000000000000:7", "1", "t", "12", "s", "0")
		w.SetTTL("lockline:r:{x}", 20*time.Second)
		m := rlock.New(newSession(t, w.rdb), "x")
		start := time.Now()
		_, hold := lock(t, m, bg)
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("got it after %v", took)
		}
		unlock(t, hold)
	})
}

func TestTokensGrowWhateverRedisForgets(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		last := int64(0)
		grab := func(after string) {
			t.Helper()
			_, hold := lock(t, m, bg)
			if hold.Token() <= last {
				t.Errorf("after %s: token %d after %d", after, hold.Token(), last)
			}
			last = hold.Token()
			unlock(t, hold)
		}
		grab("nothing")
		grab("an unlock at the same instant")
		w.FlushAll()
		time.Sleep(time.Millisecond)
		grab("a flush")
		time.Sleep(time.Hour)
		if len(w.Keys()) != 0 {
			t.Errorf("an idle lock is still remembered: %q", w.Keys())
		}
		grab("an idle hour")
		// A clock that falls back does not matter as long as the token is remembered.
		w.SetTime(time.Now().Add(-time.Hour))
		grab("a clock that fell back")
		w.SetTime(time.Time{})
	})
}

func TestTheTokenIsRememberedForLongerThanTheLockIsHeld(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := rlock.New(newSession(t, w.rdb), "x")
		_, hold := lock(t, m, bg)
		time.Sleep(3 * time.Hour)
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l <= 0 || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		if err := hold.Extend(bg, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l != 24*time.Hour || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		unlock(t, hold)
	})
}

func TestARenewedLeaseIsCountedFromWhenTheRenewalLeft(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	_, hold := lock(t, rlock.New(newSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(lease)), "x"), bg)
	granted := hold.Deadline()
	proxy.SetDelay(100 * time.Millisecond) // much more than the margin for drift
	eventually(t, "renewed", func() bool { return hold.Deadline().After(granted) })
	deadline := hold.Deadline()
	for _, r := range proxy.Requests() {
		if isScript(&r, "keep.lua") && !deadline.After(r.At.Add(lease)) {
			return
		}
	}
	t.Error("believed for longer than its lease after any renewal had left")
}

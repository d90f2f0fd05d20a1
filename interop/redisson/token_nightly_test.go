//go:build nightly

package redisson

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// Proves: tokens, Redisson
func TestTheTokensOfBothSidesRiseTogether(t *testing.T) {
	needJVM(t)
	t.Run("by the clock of Redis", func(t *testing.T) { tokensRise(t, 0) })
	t.Run("by counting, since the clock was set back", func(t *testing.T) {
		tokensRise(t, time.Now().Add(time.Hour).UnixMicro())
	})
}

// Proves: tokens, Redisson
func TestWithFencedKeysTheTokensOfBothSidesRiseFromTheFirstHoldOn(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	m := redisson.NewFenced(testlock.NewSession(t, server.Client(t)), "x")
	a := dial(t, lease, server.Addr).thread("a")
	last := int64(0)
	for range 2 {
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		if hold.Token() <= last {
			t.Errorf("Go has token %d after %d", hold.Token(), last)
		}
		if last = a.number("lockAndGetToken", "x"); last != hold.Token()+1 {
			t.Errorf("the JVM has token %d after %d", last, hold.Token())
		}
		a.do("unlock", "x")
	}
}

func TestWithoutFencingTheTwoSidesLeaveNothingThatStays(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	m := redisson.New(testlock.NewSession(t, rdb), "x")
	a := dial(t, lease, server.Addr).thread("a")
	for range 2 {
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		a.do("lock", "x")
		if st, err := m.Inspect(bg); err != nil || !st.Held || st.Count != 1 || st.Token != 0 {
			t.Errorf("the JVM has the lock, and Inspect says %+v, %v", st, err)
		}
		a.do("unlock", "x")
	}
	for _, key := range rdb.Keys(bg, "*").Val() {
		if ttl := rdb.PTTL(bg, key).Val(); ttl == -1 {
			t.Errorf("%s has no expiry", key)
		}
	}

	// The tokens of the JVM begin at 1 when it first requests a token. After the next hold of Lockline, they
	// are above the token of this hold.
	if first := a.number("lockAndGetToken", "x"); first != 1 {
		t.Errorf("the JVM's first token is %d", first)
	}
	if st, err := m.Inspect(bg); err != nil || st.Token != 0 {
		t.Errorf("Inspect says %+v, %v", st, err)
	}
	a.do("unlock", "x")
	_, hold := testlock.Lock(t, m, bg)
	testlock.Unlock(t, hold)
	if next := a.number("lockAndGetToken", "x"); next != hold.Token()+1 {
		t.Errorf("the JVM has token %d after %d", next, hold.Token())
	}
	a.do("unlock", "x")
}

// tokensRise makes both sides take turns, and fails the test unless each token is above the token before. The
// first token must be above last.
func tokensRise(t *testing.T, last int64) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	testlock.Must(t, rdb.Set(bg, "redisson_lock_token:{x}", last, 0).Err())
	stands := make(testlock.Waits, 1)
	m := redisson.New(testlock.NewSession(t, rdb, rlock.WithObserver(stands), rlock.WithHandover(time.Hour)),
		"x")
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")
	rises := func(whose string, token int64) {
		t.Helper()
		if token <= last {
			t.Errorf("%s has token %d after %d", whose, token, last)
		}
		last = token
	}
	enterJVM := func() {
		t.Helper()
		rises("the JVM", a.number("lockAndGetToken", "x"))
	}
	inJVM := func() {
		t.Helper()
		enterJVM()
		a.do("unlock", "x")
	}
	inGo := func(options ...rlock.Option) *rlock.Hold {
		t.Helper()
		_, hold := testlock.Lock(t, m, bg, options...)
		rises("Go", hold.Token())
		return hold
	}
	// handedOn passes the lock on in memory, to a goroutine whose hold gets the next token.
	handedOn := func(hold *rlock.Hold) *rlock.Hold {
		t.Helper()
		next := waiter(m)
		receive(t, "the next goroutine stands in line", stands)
		testlock.Unlock(t, hold)
		hold = granted(t, next).hold
		rises("Go, from goroutine to goroutine,", hold.Token())
		return hold
	}

	inJVM() // the first hold of all
	for range 3 {
		testlock.Unlock(t, inGo())
		inJVM()
	}
	enterJVM()
	enterJVM() // a nested hold
	a.do("unlock", "x")
	a.do("unlock", "x")
	testlock.Unlock(t, handedOn(handedOn(inGo())))
	inJVM()

	// Next, holds of Go are lost before they are released, by force or because the lease has ended.
	forced := handedOn(handedOn(inGo()))
	b.do("forceUnlock", "x")
	inJVM()
	_ = forced.Unlock(bg) // returns an error, because the hold was lost
	testlock.Unlock(t, inGo())
	inJVM()
	inGo(rlock.WithLease(5 * time.Second))
	inJVM()

	// The next hold of the JVM is lost by force.
	enterJVM()
	testlock.ForceUnlock(t, m)
	testlock.Unlock(t, inGo())
	inJVM()

	// Lockline's metadata expires some time after the last hold. The test deletes it instead. Redisson's
	// counter never expires.
	testlock.Must(t, rdb.Del(bg, "lockline_lock_memory:{x}").Err())
	inJVM()
	testlock.Unlock(t, inGo())
	inJVM()
}

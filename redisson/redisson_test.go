package redisson_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { testredis.Run(m) }

var bg = context.Background()

var shared = contract.Kind{
	Shared: true,
	Has: contract.Reenters | contract.Counts | contract.Fences | contract.Excludes | contract.Turns |
		contract.Hints,
	New: func(process []*rlock.Session) contract.Maker {
		return func(name string, options ...rlock.Option) contract.Lock {
			return contract.Mutex(redisson.New(process[0], name, options...))
		}
	},
}

func TestContract(t *testing.T) { contract.Run(t, shared) }

func TestTheKeysAreRedissonsOwn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		s := testlock.NewSession(t, rdb)
		for name, suffix := range map[string]string{"x": "{x}", "a{b}c": "a{b}c"} {
			m := redisson.New(s, name)
			testlock.Must(t, rdb.Set(bg, "redisson_lock_token:"+suffix, "1900000000000000", 0).Err())
			_, hold := testlock.Lock(t, m, bg)
			fields := rdb.HGetAll(bg, name).Val()
			if owner := testlock.Inspect(t, m).Owner; fields[owner] != "1" ||
				!strings.HasPrefix(owner, s.ID()+":") {
				t.Errorf("%q: %v", name, fields)
			}
			if hold.Token() != 1900000000000001 {
				t.Errorf("%q: token %d does not follow Redisson's", name, hold.Token())
			}
			sub := rdb.Subscribe(bg, "redisson_lock__channel:"+suffix)
			if _, err := sub.Receive(bg); err != nil {
				t.Fatal(err)
			}
			testlock.Unlock(t, hold)
			msg, err := sub.ReceiveMessage(testlock.Bounded(t))
			if err != nil || msg.Payload != "0" {
				t.Errorf("%q: unlock published %v, %v", name, msg, err)
			}
			if last := rdb.Get(bg, "redisson_lock_token:"+suffix).Val(); last != "1900000000000001" {
				t.Errorf("%q: Redisson's next token would follow %v", name, last)
			}
			_ = sub.Close()

			// A lock that an RLock of a JVM holds is taken for us.
			testlock.Must(t, rdb.HSet(bg, name, "285475da-9152-4c83-822a-67ee2f116a79:52", 2).Err())
			testlock.Must(t, rdb.PExpire(bg, name, time.Minute).Err())
			var locked *rlock.LockedError
			if _, _, err := m.TryLock(bg); !errors.As(err, &locked) ||
				locked.Holder != "285475da-9152-4c83-822a-67ee2f116a79:52" {
				t.Errorf("%q: %v", name, err)
			}
			if st := testlock.Inspect(t, m); st.Count != 2 ||
				st.Session != "285475da-9152-4c83-822a-67ee2f116a79" || st.Token != 0 {
				t.Errorf("%q: %+v", name, st)
			}
		}
		for _, name := range []string{"a}b", "{}x", "a{b"} {
			if _, _, err := redisson.New(s, name).TryLock(bg); err == nil ||
				!strings.Contains(err.Error(), "hash tag") {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

func TestTheTokenCounterIsMadeForFencedLocksAloneAndRaisedWhereItIs(t *testing.T) {
	const counter = "redisson_lock_token:{x}"
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		plain, fenced := redisson.New(testlock.NewSession(t, rdb), "x"),
			redisson.NewFenced(testlock.NewSession(t, rdb), "x")
		last := int64(0)
		cycle := func(m *redisson.Mutex) {
			t.Helper()
			_, hold := testlock.Lock(t, m, bg)
			testlock.WantAfter(t, hold, last)
			last = hold.Token()
			if during, err := rdb.Get(bg, counter).Int64(); err == nil && during != last {
				t.Errorf("during a hold of token %d Redisson's next one would follow %d", last, during)
			}
			testlock.Unlock(t, hold)
		}
		follows := func(m *redisson.Mutex) {
			t.Helper()
			cycle(m)
			if after, err := rdb.Get(bg, counter).Int64(); err != nil || after != last {
				t.Errorf("after token %d Redisson's next one would follow %d, %v", last, after, err)
			}
			if ttl := rdb.PTTL(bg, counter).Val(); ttl != -1 { // Redisson would count from 1 again
				t.Errorf("the counter lasts for %v", ttl)
			}
		}
		cycle(plain)
		if n := rdb.Exists(bg, counter).Val(); n != 0 {
			t.Error("a lock without fencing in the JVM has a counter")
		}
		testlock.Must(t, rdb.Set(bg, counter, 1, 0).Err()) // an RFencedLock was here
		follows(plain)
		follows(fenced)
		testlock.Must(t, rdb.Del(bg, counter).Err())
		follows(fenced)
		follows(plain)
	})
}

// Proves: notice
func TestAForgottenHoldIsLostAlthoughTheMetadataWasEvicted(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		forgotten := testlock.Take(t, redisson.New(testlock.NewSession(t, w.Client), "x"),
			rlock.WithLease(time.Hour))
		w.Del("x")
		time.Sleep(time.Millisecond)
		later := testlock.Take(t, redisson.New(testlock.NewSession(t, w.Client), "x"))
		w.Del("lockline_lock_memory:{x}")
		testlock.Unlock(t, later)
		testlock.WantError(t, "Unlock", forgotten.Unlock(bg), rlock.ErrLost)
	})
}

func TestALockThatDiffersByBracesOnlyIsAnother(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		s := testlock.NewSession(t, rdb)
		_, bare := testlock.Lock(t, redisson.New(s, "x"), bg)
		_, braced := testlock.Lock(t, redisson.New(s, "{x}"), bg)
		testlock.Unlock(t, bare)
		testlock.Unlock(t, braced)
	})
}

// Only the owner field distinguishes one hold of a JVM from the next.
// Proves: forced unlock
func TestForceUnlockTokenLeavesAHoldWithoutATokenAlone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		m := redisson.New(testlock.NewSession(t, rdb), "x")
		testlock.Must(t, rdb.HSet(bg, "x", "d1c5a3de-0d56-4b4e-8f0a-9d0e3b4c1a77:30", 1).Err())
		testlock.Must(t, rdb.PExpire(bg, "x", time.Minute).Err())
		if st, err := m.Inspect(bg); err != nil || !st.Held || st.Token != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		if freed, err := m.ForceUnlockToken(bg, 1); freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
		if _, err := m.ForceUnlockToken(bg, 0); err == nil {
			t.Error("no error with token 0")
		}
		if freed, err := m.ForceUnlock(bg); !freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
	})
}

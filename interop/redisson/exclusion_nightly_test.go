//go:build nightly

package redisson

import (
	"errors"
	"sync"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

// excluded fails the test unless a TryLock in Go returns an error that names a holder.
func excluded(t testing.TB, m testlock.Mutex) {
	t.Helper()
	var locked *rlock.LockedError
	if _, hold, err := m.TryLock(bg); !errors.As(err, &locked) || locked.Holder == "" {
		_ = hold.Unlock(bg)
		t.Fatalf("not excluded by the JVM: %v", err)
	}
}

// Proves: Redisson
func TestBothSidesReenterAndExcludeTheOtherUntilTheLastUnlock(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	m := redisson.New(testlock.NewSession(t, server.Client(t)), "x")
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")

	a.do("lock", "x")
	a.do("lock", "x")
	if st, err := m.Inspect(bg); err != nil || st.Count != 2 || a.number("holdCount", "x") != 2 {
		t.Errorf("held twice in the JVM, and Inspect says %+v, %v", st, err)
	}
	excluded(t, m)
	if b.tryLock("x") {
		t.Error("two threads of the JVM are inside")
	}
	a.do("unlock", "x")
	excluded(t, m)
	waiting := waiter(m)
	a.do("unlock", "x")
	testlock.Unlock(t, granted(t, waiting).hold)

	ctx, outer := testlock.Lock(t, m, bg)
	_, inner := testlock.Lock(t, m, ctx)
	for _, hold := range []*rlock.Hold{outer, inner} { // the outer hold may be unlocked first
		if a.tryLock("x") {
			t.Error("the JVM is inside while Go holds the lock")
		}
		testlock.Unlock(t, hold)
	}
	if !a.tryLock("x") {
		t.Error("the JVM cannot have a free lock")
	}
	a.do("unlock", "x")
	if n := server.Client(t).Exists(bg, "x").Val(); n != 0 {
		t.Error("the lock is left behind")
	}
}

// increment adds 1 to a counter in two steps, a read and a write, as Driver.java does.
func increment(rdb *redis.Client, name string) error {
	n, err := rdb.Get(bg, "n:"+name).Int()
	if err != nil && err != redis.Nil {
		return err
	}
	return rdb.Set(bg, "n:"+name, n+1, 0).Err()
}

// crowd makes goroutines and Java threads increment counters under locks, and checks the sums. Each element
// of goSide has the names of the locks that one goroutine takes at the same time. An element of jvmSide has
// the same for a thread.
func crowd(t *testing.T, rounds int, goSide, jvmSide [][]string) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	jvm := dial(t, lease, server.Addr)
	want := map[string]int{}
	var answers []<-chan answer
	for i, names := range jvmSide {
		args := []any{rounds}
		for _, name := range names {
			args = append(args, name)
			want[name] += rounds
		}
		answers = append(answers, jvm.thread(string(rune('a'+i))).start("count", args...))
	}
	sessions := []*rlock.Session{testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)}
	var wg sync.WaitGroup
	for i, names := range goSide {
		members := make([]rlock.Locker, len(names))
		for k, name := range names {
			members[k] = redisson.New(sessions[i%2], name)
			want[name] += rounds
		}
		m := multilock.New(members...)
		wg.Go(func() {
			for range rounds {
				_, hold, err := m.Lock(bg)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				for _, name := range names {
					err = errors.Join(err, increment(rdb, name))
				}
				if err = errors.Join(err, hold.Unlock(bg)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range answers {
		if a := receive(t, "the JVM has counted", c); a.err != nil {
			t.Error(a.err)
		}
	}
	for name, n := range want {
		if got, err := rdb.Get(bg, "n:"+name).Int(); got != n {
			t.Errorf("%s was counted to %d instead of %d: %v", name, got, n, err)
		}
		if rdb.Exists(bg, name).Val() != 0 {
			t.Errorf("%s is left behind", name)
		}
	}
}

// Proves: Redisson
func TestACrowdOfGoroutinesAndThreadsNeverOverlaps(t *testing.T) {
	needJVM(t)
	one := [][]string{{"x"}, {"x"}, {"x"}, {"x"}}
	crowd(t, 100, one, one)
}

// A MultiLock of Redisson holds some locks while it waits for others. So its threads must name the locks in
// the same order. The order does not matter for a MultiLock of Lockline.
func TestMultiLocksOfBothSidesTakeAllOrNone(t *testing.T) {
	needJVM(t)
	crowd(t, 20,
		[][]string{{"x", "y", "z"}, {"z", "x"}, {"x", "z"}, {"y"}},
		[][]string{{"z", "y", "x"}, {"y", "x"}, {"z"}})
}

func TestAMultiLockWaitsForTheJVMWithNothingInHand(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	s := testlock.NewSession(t, rdb)
	own, err := rlock.NewSession(rdb) // a session for locks that the JVM does not use
	testlock.Must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")

	a.do("lock", "y", "z")
	m := multilock.New(redisson.New(s, "x"), rlock.New(own, "x"), redisson.New(s, "y"), redisson.New(s, "z"))
	waiting := waiter(m)
	subscribed(t, "y", rdb)
	eventually(t, "the JVM can have what Go's MultiLock gave back", func() bool { return b.tryLock("x") })
	b.do("unlock", "x")
	a.do("unlock", "y", "z")
	hold := granted(t, waiting).hold
	if len(hold.Parts()) != 4 {
		t.Errorf("%d parts", len(hold.Parts()))
	}
	for _, name := range []any{"x", "y", "z"} {
		if a.tryLock(name) {
			t.Errorf("the JVM has %v, too", name)
		}
	}
	both := a.start("lock", "z", "x")
	subscribed(t, "z", rdb)
	testlock.Unlock(t, hold)
	if got := receive(t, "the JVM's MultiLock", both); got.err != nil {
		t.Fatal(got.err)
	}
	excluded(t, redisson.New(s, "x"))
	excluded(t, redisson.New(s, "z"))
	a.do("unlock", "z", "x")
}

//go:build nightly

package redisson

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// short is a lease for tests that last for several leases. A slow machine can still renew it in time.
const short = 3 * time.Second

// renewals waits until the lease of each lock has been renewed n times.
func renewals(t testing.TB, rdb *redis.Client, n int, names ...string) {
	t.Helper()
	last, seen := map[string]time.Duration{}, map[string]int{}
	eventually(t, "the leases are renewed", func() bool {
		done := true
		for _, name := range names {
			left := rdb.PTTL(bg, name).Val()
			if left < 0 {
				t.Fatalf("%s is not held any more", name)
			}
			if left > last[name] && last[name] > 0 {
				seen[name]++
			}
			last[name] = left
			done = done && seen[name] >= n
		}
		return done
	})
}

func TestTheWatchdogsOfBothSidesKeepTheLockForManyLeases(t *testing.T) {
	needJVM(t)
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(short))
	jvm := dial(t, short, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")
	began := time.Now()
	a.do("lock", "x")
	ctx, hold := testlock.Lock(t, redisson.New(s, "y"), bg)
	toGo, toJVM := waiter(redisson.New(s, "x")), b.start("lock", "y")

	renewals(t, rdb, 7, "x", "y") // renewals are a third of a lease apart
	if held := time.Since(began); held < 2*short {
		t.Errorf("seven renewals in %v", held)
	}
	if n := a.number("holdCount", "x"); n != 1 || ctx.Err() != nil || len(toGo) > 0 || len(toJVM) > 0 {
		t.Fatalf("the JVM's hold count is %d, Go's context says %v; %d, %d waiters were let in",
			n, ctx.Err(), len(toGo), len(toJVM))
	}
	a.do("unlock", "x")
	testlock.Unlock(t, hold)
	testlock.Unlock(t, granted(t, toGo).hold)
	testlock.Must(t, receive(t, "lock in the JVM", toJVM).err)
	b.do("unlock", "y")
}

func TestWhatAKilledJVMHeldIsFreeAfterItsLease(t *testing.T) {
	needJVM(t)
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	own := startJVM(t)
	defer own.end()
	own.dial(t, short, "-", server.Addr).thread("a").do("lock", "x")
	waiting := waiter(redisson.New(testlock.NewSession(t, rdb), "x"))
	renewals(t, rdb, 1, "x")
	testlock.Must(t, own.cmd.Process.Kill())
	killed := time.Now()
	left := rdb.PTTL(bg, "x").Val()
	g := granted(t, waiting)
	if waited := g.at.Sub(killed); waited < left-time.Millisecond {
		t.Errorf("Go was let in after %v, with %v of the JVM's lease left", waited, left)
	}
	testlock.Unlock(t, g.hold)
}

func TestTheJVMGetsWhatGoLeavesToItsLease(t *testing.T) {
	needJVM(t)
	t.Parallel()
	server := testredis.Start(t)
	_, hold := testlock.Lock(t, redisson.New(testlock.NewSession(t, server.Client(t)), "x"), bg,
		rlock.WithLease(short/6))
	a := dial(t, lease, server.Addr).thread("a")
	a.do("lock", "x")
	testlock.WantError(t, "the JVM is inside, and Go's hold says", hold.Err(), rlock.ErrLost)
	a.do("unlock", "x")
}

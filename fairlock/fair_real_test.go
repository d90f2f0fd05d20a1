package fairlock_test

import (
	"bufio"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Proves: order
func TestWaitersAreServedInTheOrderInWhichRedisSawThem(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	var all []*rlock.Mutex
	for range 4 {
		all = append(all, fairlock.New(testlock.NewSession(t, rdb), "x"))
	}
	hold := testlock.Take(t, all[0])
	var waits []<-chan testlock.Grant
	for i := range 40 {
		// Some waiters in a row are of one session.
		waits = append(waits, testlock.Go(testlock.Bounded(t), all[i*i%7%4]))
		testlock.Eventually(t, "in the queue", func() bool {
			return len(testlock.Inspect(t, all[0]).Queue) == i+1
		})
	}
	last := hold.Token()
	testlock.Unlock(t, hold)
	for _, got := range waits {
		hold := testlock.Granted(t, got)
		testlock.WantAfter(t, hold, last)
		last = hold.Token()
		testlock.Unlock(t, hold)
	}
	testlock.OnlyTokens(t, rdb)
	if ttl := rdb.PTTL(bg, testlock.Prefix(rdb)+":f:{x}").Val(); ttl <= 0 || ttl > 3*time.Minute {
		t.Errorf("the token is remembered for %v", ttl)
	}
}

// Somebody replaces the scores and times of the queue by odd numbers. Waiters must still be served. No lease
// may last forever, and an entry that is not a waiter must not block the others. Proves: values
func TestWaitersAreServedThoughTheirScoresWereChanged(t *testing.T) {
	t.Parallel()
	for _, score := range []float64{math.Inf(1), math.Inf(-1), -5, 1e18, 9007199254740992} {
		t.Run(fmt.Sprint(score), func(t *testing.T) {
			t.Parallel()
			rdb := testlock.Shared(t)
			key := testlock.Prefix(rdb) + ":f:{x}"
			held := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
			waits := testlock.Go(testlock.Bounded(t),
				fairlock.New(testlock.NewSession(t, rdb, rlock.WithWaiterTimeout(5*time.Second)), "x"))
			testlock.Eventually(t, "it waits", func() bool { return waiting(rdb, "f") == 1 })
			waiter := rdb.ZRange(bg, key+":q", 0, 0).Val()[0]
			_, entry, _ := strings.Cut(rdb.HGet(bg, key+":w", waiter).Val(), " ")
			testlock.Must(t, rdb.ZAdd(bg, key+":q", redis.Z{Score: score, Member: waiter},
				redis.Z{Score: -1, Member: "another:1"}).Err())
			entry = strconv.FormatFloat(score, 'f', -1, 64) + " " + entry
			testlock.Must(t, rdb.HSet(bg, key+":w", waiter, entry, "another:1", entry).Err())
			testlock.Unlock(t, held)
			hold := testlock.Granted(t, waits)
			testlock.WantAfter(t, hold, held.Token())
			ends, err := rdb.HGet(bg, key, "ends").Int64()
			testlock.Must(t, err)
			if left := time.UnixMicro(ends).Sub(rdb.Time(bg).Val()); left <= 0 || left > time.Minute {
				t.Errorf("held for %v", left)
			}
			testlock.Unlock(t, hold)
		})
	}
}

// There are more dead entries than a Lua function can return values.
func TestRedisson3166ManyDeadEntriesDoNotBlockANewcomer(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	past := time.Now().Add(-time.Minute)
	var dead []redis.Z
	var entries []string
	for i := range 10_000 {
		attempt := fmt.Sprint("33333333-0000-4000-8000-000000000000:", i)
		dead = append(dead, redis.Z{Score: float64(past.UnixMicro()), Member: attempt})
		entries = append(entries, attempt, entry(past))
	}
	testlock.Must(t, rdb.ZAdd(bg, testlock.Prefix(rdb)+":f:{x}:q", dead...).Err())
	testlock.Must(t, rdb.HSet(bg, testlock.Prefix(rdb)+":f:{x}:w", entries).Err())
	_, hold := testlock.TryLock(t, fairlock.New(testlock.NewSession(t, rdb), "x"), bg)
	if n := waiting(rdb, "f"); n != 0 {
		t.Errorf("%d dead entries are left", n)
	}
	testlock.Unlock(t, hold)
}

// waiting returns the number of attempts in the queue of lock x.
func waiting(rdb redis.Cmdable, letter string) int64 {
	return rdb.ZCard(bg, testlock.Prefix(rdb)+":"+letter+":{x}:q").Val()
}

// waiters starts a process in which each session waits for lock x with some goroutines. The process prints a
// line for each grant, which the channel receives.
func waiters(t *testing.T, letter, addrs, prefix string, sessions, each int) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := testlock.Child(letter, prefix, addrs, sessions, each)
	out, err := cmd.StdoutPipe()
	testlock.Must(t, err)
	testlock.Must(t, cmd.Start())
	lines, done := make(chan string, sessions*each), make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return cmd, lines
}

// The dead waiters have a waiter timeout of hours, so the test would fail if anybody waited for this time.
// Proves: dead processes
func TestTheDeadCostTheLivingNoTime(t *testing.T) {
	t.Parallel()
	const dead = 100
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		t.Parallel()
		rdb := testlock.Shared(t)
		hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb, longLiveness), "x"))
		process, _ := waiters(t, letter, rdb.Options().Addr, testlock.Prefix(rdb), dead, 1)
		testlock.Eventually(t, "all wait, and listen", func() bool { return marked(rdb, letter) == dead })
		got := testlock.Go(testlock.Bounded(t), newMutex(testlock.NewSession(t, rdb, longLiveness), "x"))
		testlock.Eventually(t, "one behind them", func() bool { return waiting(rdb, letter) == dead+1 })
		testlock.Must(t, process.Process.Kill())
		testlock.Eventually(t, "the server knows", func() bool {
			return len(rdb.PubSubChannels(bg, testlock.Prefix(rdb)+":s:*").Val()) <= 1
		})
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		if n := waiting(rdb, letter); n != dead {
			t.Errorf("%d keep their places, of %d that may live", n, dead)
		}
	})
}

// Proves: dead processes
func TestAGrantToAFrozenProcessIsTakenBackAfterItsLease(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	m := fairlock.New(testlock.NewSession(t, rdb, longLiveness), "x")
	hold := testlock.Take(t, m)
	process, grants := waiters(t, "f", rdb.Options().Addr, testlock.Prefix(rdb), 1, 10)
	queued := func(n int) {
		t.Helper()
		testlock.Eventually(t, "they wait", func() bool { return len(testlock.Inspect(t, m).Queue) == n })
	}
	queued(10)
	testlock.Must(t, process.Process.Signal(testredis.StopSignal))
	got := testlock.Go(testlock.Bounded(t), m)
	queued(11)
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, got)
	testlock.Must(t, process.Process.Signal(testredis.ContinueSignal))
	// The process wakes up and finds the message of an old grant. It must not use this grant, but must wait
	// again.
	queued(10)
	if len(grants) > 0 || next.Err() != nil {
		t.Errorf("two holders: %d grants are considered valid", len(grants))
	}
	testlock.Unlock(t, next)
	testlock.Receive(t, "the thawed process has the lock", grants)
}

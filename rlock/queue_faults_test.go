package rlock_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// stands: a request for the lock that takes a place in the queue.
func stands(r *faultproxy.Request) bool {
	const liveness = 13
	return isScript(r, "queue/lock.lua") && r.Args[liveness] != "0"
}

// seen is how many of those in the queue the server has seen listen.
func seen(rdb *redis.Client) (n int) {
	for _, entry := range rdb.HVals(bg, lockKey+":d").Val() {
		if strings.Contains(entry, "+ ") {
			n++
		}
	}
	return n
}

func TestAnOutageBehindTheRefusalOnlyLengthensTheWait(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, server.Client(t)), "x"), bg)
	var dropped atomic.Int64
	const outage = 20 // requests; one is sent four times at most
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if stands(r) && dropped.Add(1) <= outage {
			return faultproxy.DropAndCut
		}
		return faultproxy.Pass
	})
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"))
	testlock.Eventually(t, "the outage is over", func() bool { return dropped.Load() > outage })
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}

// The answer to the request for a place is lost, and its time-out is longer than the first lease of a lock that is handed over.
func TestAWaiterThatIsToldOfItsGrantDoesNotWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	other, waiter := rlock.New(testlock.NewSession(t, rdb), "x"), rlock.New(testlock.NewSession(t, proxy.Client(t)), "x")
	_, hold := testlock.Lock(t, other, bg)
	first := testlock.Go(bg, waiter) // so that it listens
	testlock.Eventually(t, "it listens", func() bool { return seen(rdb) == 1 })
	testlock.Unlock(t, hold)
	mine := testlock.Granted(t, first)
	got := testlock.Go(bg, other)
	testlock.Eventually(t, "the other waits", func() bool { return rdb.ZCard(bg, lockKey+":q").Val() == 1 })
	testlock.Unlock(t, mine)
	hold = testlock.Granted(t, got)

	var lost atomic.Bool
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if stands(r) && lost.CompareAndSwap(false, true) {
			return faultproxy.SwallowReply
		}
		return faultproxy.Pass
	})
	got = testlock.Go(bg, waiter)
	testlock.Eventually(t, "it waits", func() bool { return rdb.ZCard(bg, lockKey+":q").Val() == 1 })
	behind := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb), "x"))
	testlock.Eventually(t, "one behind it", func() bool { return rdb.ZCard(bg, lockKey+":q").Val() == 2 })
	testlock.Unlock(t, hold)
	mine = testlock.Granted(t, got)
	testlock.Unlock(t, mine)
	last := testlock.Granted(t, behind)
	if last.Token() < mine.Token() {
		t.Error("the place was lost")
	}
	testlock.Unlock(t, last)
}

func TestAFixedLeaseIsMadeWholeOnceAnOutageIsOver(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"), rlock.WithLease(time.Minute))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == 1 })
	var dropped atomic.Int64
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if isScript(r, "keep.lua") && dropped.Add(1) <= 5 {
			return faultproxy.DropAndCut
		}
		return faultproxy.Pass
	})
	testlock.Unlock(t, hold)
	mine := testlock.Granted(t, got)
	testlock.Eventually(t, "it has what it asked for", func() bool { return time.Until(mine.Deadline()) > 30*time.Second })
	testlock.Unlock(t, mine)
}

func TestALateCopyOfAnAttemptThatWentMissingTakesNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	m := rlock.New(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), "x")
	testlock.Works(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "y")) // the scripts are known
	var once atomic.Bool
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if stands(r) && once.CompareAndSwap(false, true) {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
	got := testlock.Go(bg, m)
	var first []string
	testlock.Eventually(t, "its second copy stands", func() bool {
		first = rdb.ZRange(bg, queueKey, 0, 0).Val()
		return len(first) == 1
	})
	pause := 50 * time.Millisecond
	testlock.Eventually(t, "it stands anew", func() bool {
		// Each time: the second copy's answer may have been cut off, and a third one stands with the same attempt.
		testlock.Must(t, rdb.Del(bg, queueKey, lockKey+":a", lockKey+":d").Err())
		proxy.CutAll() // so that it listens again, and looks
		<-time.After(pause)
		pause *= 2 // a busy machine needs longer for that
		now := rdb.ZRange(bg, queueKey, 0, 0).Val()
		return len(now) == 1 && now[0] != first[0]
	})
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
	if len(proxy.Held()) != 1 {
		t.Fatalf("%d copies are late", len(proxy.Held()))
	}
	testlock.Must(t, proxy.Release(proxy.Held()[0]))
	testlock.Works(t, rlock.New(testlock.NewSession(t, rdb), "x"))
	if n := rdb.Exists(bg, lockKey).Val(); n != 0 {
		t.Error("an attempt that is over has the lock")
	}
}

func TestAFullServerEndsNoWait(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(time.Second)), "x"))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == 1 })
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	testlock.Eventually(t, "heartbeats are refused", func() bool { return strings.Contains(rdb.Info(bg, "errorstats").Val(), "OOM") })
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}

// Nobody is passed over by a user that may not ask who listens.
func TestAWaiterIsNotPassedOverWhereItIsNotKnownWhetherItListens(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	user := testlock.User(t, server, "without", "+@all", "-pubsub", "~*", "&*")
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, user), "x"), bg)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb), "x"))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == 1 })
	testlock.Unlock(t, hold)
	if owner := testlock.Inspect(t, rlock.New(testlock.NewSession(t, rdb), "x")); !owner.Held {
		t.Error("the lock was handed to nobody")
	}
	testlock.Unlock(t, testlock.Granted(t, got))
}

// Of more waiters than are passed over at once, all of whom are gone, the first costs its lease. Others are served.
func TestManyOfTheDeadHideNobodyThatLives(t *testing.T) {
	const dead = 1001
	rdb := testredis.Start(t).Client(t)
	now := time.Now().UnixMicro()
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	for i := range dead {
		owner := fmt.Sprintf("dead%d:1", i)
		rdb.ZAdd(bg, queueKey, redis.Z{Score: float64(now - 2000000 + int64(i)), Member: owner})
		rdb.ZAdd(bg, lockKey+":a", redis.Z{Score: float64(now + 3600_000000), Member: owner})
		rdb.HSet(bg, lockKey+":d", owner, "1 30000 abc+ me")
	}
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb), "x"))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == dead+1 })
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}

// A release without the queue's keys, as while a slot moves, does not free a lock that others wait for.
func TestAReleaseWithoutTheQueueSaysThatItNeedsIt(t *testing.T) {
	rdb := testredis.Start(t).Client(t)
	run := func(file string, keys int, args ...any) (string, error) {
		text, err := os.ReadFile("../internal/queue/" + file)
		testlock.Must(t, err)
		return rdb.Eval(bg, string(text), []string{lockKey, memoryKey, queueKey, lockKey + ":a", lockKey + ":d"}[:keys], args...).Text()
	}
	ask := func(owner string) {
		t.Helper()
		_, err := run("lock.lua", 5, owner, 30000, int64(1)<<52, "", 60000, 30000, "lockline:s:", 1, "", 0, "nonce", 0)
		testlock.Must(t, err)
	}
	ask("h:1")
	if reply, err := run("release.lua", 2, "h:1", "", "lockline:s:", 60000, 0, 0); err != nil || reply != "R" {
		t.Errorf("of a lock that nobody waits for: %q, %v", reply, err)
	}
	ask("h:2")
	ask("a:1")
	ask("b:1")
	testlock.Must(t, rdb.Del(bg, lockKey).Err()) // its lease is over
	ask("a:1")                                   // a second copy takes the lock, and b waits
	for range 2 {
		if reply, err := run("release.lua", 2, "a:1", "", "lockline:s:", 60000, 0, 0); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
			t.Errorf("%q, %v", reply, err)
		}
	}
	if reply, err := run("release.lua", 5, "a:1", "", "lockline:s:", 60000, 0, 0); err != nil || !strings.HasPrefix(reply, "R b:1 ") {
		t.Errorf("with it: %q, %v", reply, err)
	}
}

package fairlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// queued kinds, by the letter in their keys.
var queuedKinds = map[string]testlock.Maker{"f": fairlock.New, "r": rlock.New}

func everyQueue(t *testing.T, test func(t *testing.T, letter string, newMutex testlock.Maker)) {
	for letter, newMutex := range queuedKinds {
		t.Run(letter, func(t *testing.T) {
			t.Parallel()
			test(t, letter, newMutex)
		})
	}
}

// waiting is how many attempts stand in the queue of lock x.
func waiting(rdb redis.Cmdable, letter string) int64 {
	return rdb.ZCard(bg, "lockline:"+letter+":{x}:q").Val()
}

// marked is how many of them the server has seen listen.
func marked(rdb redis.Cmdable, letter string) (n int64) {
	for _, entry := range rdb.HVals(bg, "lockline:"+letter+":{x}:d").Val() {
		if words := strings.Fields(entry); strings.HasSuffix(words[2], "+") {
			n++
		}
	}
	return n
}

// manySessions is a process with sessions that wait for lock x, each with one goroutine, until it is killed. Several
// addresses, with commas between, are those of a Cluster.
func manySessions(letter, addrs string, n int) {
	var rdb rlock.Client = redis.NewClient(&redis.Options{Addr: addrs})
	if several := strings.Split(addrs, ","); len(several) > 1 {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: several})
	}
	for range n {
		s, err := rlock.NewSession(rdb, rlock.WithLiveness(time.Hour))
		if err != nil {
			panic(err)
		}
		go func() {
			_, hold, err := queuedKinds[letter](s, "x").Lock(bg)
			fmt.Println("granted", hold.Token(), err)
		}()
	}
	select {}
}

// With a liveness time of an hour, nobody waits for a test's patience for the dead.
func TestTheDeadCostTheLivingNoTime(t *testing.T) {
	const dead = 500
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		server := testredis.Start(t)
		rdb := server.Client(t)
		long := rlock.WithLiveness(time.Hour)
		hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb, long), "x"))
		child := testlock.Child("many", letter, server.Addr, dead)
		testlock.Must(t, child.Start())
		testlock.Eventually(t, "all wait, and listen", func() bool { return marked(rdb, letter) == dead })
		got := testlock.Go(bg, newMutex(testlock.NewSession(t, rdb, long), "x"))
		testlock.Eventually(t, "one behind them", func() bool { return waiting(rdb, letter) == dead+1 })
		testlock.Must(t, child.Process.Kill())
		_ = child.Wait()
		testlock.Eventually(t, "the server knows", func() bool {
			return len(rdb.PubSubChannels(bg, "lockline:s:*").Val()) <= 2
		})
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		if n := waiting(rdb, letter); n != dead {
			t.Errorf("%d keep their places, of %d that may live", n, dead)
		}
	})
}

func TestOneWhoseConnectionBrokeIsPassedOverAndKeepsItsPlace(t *testing.T) {
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		server := testredis.Start(t)
		rdb := server.Client(t)
		proxy := faultproxy.New(t, server.Addr)
		long := rlock.WithLiveness(time.Hour)
		holder := newMutex(testlock.NewSession(t, rdb, long), "x")
		hold := testlock.Take(t, holder)
		first := testlock.Go(bg, newMutex(testlock.NewSession(t, proxy.Client(t), long), "x"))
		testlock.Eventually(t, "the first waits", func() bool { return marked(rdb, letter) == 1 })
		second := testlock.Go(bg, newMutex(testlock.NewSession(t, rdb, long), "x"))
		testlock.Eventually(t, "the second waits", func() bool { return marked(rdb, letter) == 2 })

		back := make(chan struct{})
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Is("subscribe", "hello", "ping") {
				<-back
			}
			return faultproxy.Pass
		})
		proxy.CutAll()
		testlock.Eventually(t, "the server knows", func() bool { return len(rdb.PubSubChannels(bg, "lockline:s:*").Val()) == 1 })
		testlock.Unlock(t, hold)
		hold = testlock.Granted(t, second)
		third := testlock.Go(bg, holder)
		testlock.Eventually(t, "a third waits behind the first", func() bool { return waiting(rdb, letter) == 2 && marked(rdb, letter) == 2 })
		close(back)
		testlock.Eventually(t, "the first listens again", func() bool { return len(rdb.PubSubChannels(bg, "lockline:s:*").Val()) == 3 })
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, first))
		testlock.Unlock(t, testlock.Granted(t, third))
	})
}

func TestNoMessageIsSentWhereNobodyWaits(t *testing.T) {
	everyQueue(t, func(t *testing.T, _ string, newMutex testlock.Maker) {
		rdb := testredis.Start(t).Client(t)
		m := newMutex(testlock.NewSession(t, rdb), "x")
		for range 10 {
			testlock.Must(t, m.Do(bg, func(ctx context.Context) error { return m.Do(ctx, func(context.Context) error { return nil }) }))
		}
		if stats := rdb.Info(bg, "commandstats").Val(); strings.Contains(stats, "publish") || !strings.Contains(stats, "cmdstat_evalsha") {
			t.Errorf("%s", stats)
		}
	})
}

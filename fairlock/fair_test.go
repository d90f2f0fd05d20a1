package fairlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestWaitersAreServedInTheOrderInWhichRedisSawThem(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		var sessions []*rlock.Session
		for range 4 {
			sessions = append(sessions, testlock.NewSession(t, rdb))
		}
		hold := testlock.Take(t, fairlock.New(sessions[0], "x"))
		l := newLine(t, rdb)
		rnd := rand.New(rand.NewPCG(5, 6))
		const n = 40
		for i := range n {
			l.join(fairlock.New(sessions[rnd.IntN(4)], "x"), i)
		}
		last := hold.Token()
		testlock.Unlock(t, hold)
		for i := range n {
			a := l.next()
			if a.who != i {
				t.Fatalf("waiter %d is served as number %d", a.who, i)
			}
			testlock.WantAfter(t, a.hold, last)
			last = a.hold.Token()
			testlock.Unlock(t, a.hold)
		}
		testlock.Eventually(t, "only the token is left", func() bool {
			keys := rdb.Keys(bg, "*").Val()
			return len(keys) == 1 && keys[0] == memoryKey
		})
		if ttl := rdb.PTTL(bg, memoryKey).Val(); ttl <= 0 || ttl > 3*time.Minute {
			t.Errorf("the token is remembered for %v", ttl)
		}
	})
}

func TestARequestThatIsSentAgainKeepsItsPlace(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	kind := kindOf(t)
	a, b, c := testlock.NewSession(t, rdb), testlock.NewSession(t, proxy.Client(t)), testlock.NewSession(t, rdb)
	testlock.Works(t, fairlock.New(b, "x"))
	hold := testlock.Take(t, fairlock.New(a, "x"))
	l := newLine(t, rdb)

	var cuts atomic.Int32
	release := make(chan struct{})
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(*r) != "lock" {
			return faultproxy.Pass
		}
		if cuts.Add(1) == 1 {
			return faultproxy.CutReply
		}
		<-release
		return faultproxy.Pass
	})
	l.join(fairlock.New(b, "x"), 0)
	l.join(fairlock.New(c, "x"), 1) // stands behind the first copy, and before the second
	close(release)
	testlock.Eventually(t, "sent again", func() bool { return cuts.Load() >= 2 })
	testlock.Unlock(t, hold)
	l.serve(2)
}

func TestAHandOverCostsOneRequestAndAtMostTwoMessages(t *testing.T) {
	for _, c := range []struct{ sessions, each, more int }{{10, 50, 0}, {10, 1, 0}, {10, 1, 9990}} {
		server := testredis.Start(t)
		proxy := faultproxy.New(t, server.Addr)
		rdb := server.Client(t)
		kind := kindOf(t)
		long := rlock.WithLiveness(time.Hour) // no heartbeat in between
		first := testlock.NewSession(t, proxy.Client(t), long)
		testlock.Works(t, fairlock.New(first, "x")) // the scripts are known
		testlock.Must(t, script(t, "../internal/queue/heartbeat.lua").Load(bg, rdb).Err())
		hold := testlock.Take(t, fairlock.New(first, "x"))
		l := newLine(t, rdb)
		var sessions []*rlock.Session
		for range c.sessions {
			sessions = append(sessions, testlock.NewSession(t, proxy.Client(t), long))
		}
		for range c.each {
			for _, s := range sessions {
				l.wg.Go(func() {
					_, h, err := fairlock.New(s, "x").Lock(l.ctx)
					l.got <- arrival{0, h, err}
				})
			}
		}
		testlock.Eventually(t, "all wait", func() bool { return queued(t, rdb) == c.sessions*c.each })
		testlock.Eventually(t, "all listen", func() bool {
			return len(rdb.PubSubChannels(bg, "lockline:s:*").Val()) == c.sessions
		})
		// Each session asked once more when it began to listen, and perhaps again.
		asked := func() (n int) {
			for _, r := range proxy.Requests() {
				if kind(r) == "heartbeat" {
					n++
				}
			}
			return n
		}
		testlock.Eventually(t, "all have asked", func() bool { return asked() >= c.sessions })
		for n := -1; n != asked(); <-time.After(600 * time.Millisecond) {
			n = asked()
		}
		for i := range c.more { // others behind them
			member := redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro() + int64(i)), Member: "00000000-0000-4000-8000-000000000000:" + string(rune('a'+i%26)) + time.Duration(i).String()}
			rdb.ZAdd(bg, queueKey, member)
			rdb.ZAdd(bg, aliveKey, member)
		}
		proxy.Reset()
		hands := min(20, c.sessions*c.each-1)
		for range hands {
			testlock.Unlock(t, hold)
			hold = l.next().hold
		}
		calls := map[string]int{}
		for _, r := range proxy.Requests() {
			if k := kind(r); k != "" {
				calls[k]++
			} else if !r.Is("PING") && !r.Is("HELLO", "CLIENT") {
				t.Errorf("%v", r.Args)
			}
		}
		t.Logf("%d waiters in %d sessions, %d more: %d hand-overs, %v, %d messages", c.sessions*c.each, c.sessions, c.more, hands, calls, proxy.CountPushed())
		if calls["release"] > hands || calls["release"] == 0 || len(calls) != 1 || proxy.CountPushed() > 2*calls["release"] {
			t.Errorf("%d hand-overs cost %v and %d messages", hands, calls, proxy.CountPushed())
		}
		l.ends()
		testlock.Unlock(t, hold)
		l.wg.Wait()
		for len(l.got) > 0 { // granted while the others gave up
			if a := <-l.got; a.err == nil {
				_ = a.hold.Unlock(bg)
			}
		}
	}
}

func TestTryLockNeverJumpsALivingQueueAndLeavesNoEntry(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		s := testlock.NewSession(t, rdb)
		m := fairlock.New(s, "x")
		// The lock is free, but somebody waits who is known to live.
		next := redis.Z{Score: 1, Member: "11111111-0000-4000-8000-000000000000:1"}
		testlock.Must(t, rdb.ZAdd(bg, queueKey, next).Err())
		testlock.Must(t, rdb.ZAdd(bg, aliveKey, redis.Z{Score: float64(time.Now().Add(2 * time.Second).UnixMicro()), Member: next.Member}).Err())
		_, _, err := m.TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || locked.Holder != next.Member {
			t.Fatalf("TryLock: %v", err)
		}
		if st, err := m.Inspect(bg); err != nil || st.Owner != next.Member || len(st.Queue) != 0 {
			t.Errorf("it was not handed to who was next: %+v, %v", st, err)
		}
		// It is not there after all: its lease is the rest of its liveness.
		testlock.Works(t, m)
		if queued(t, rdb) != 0 {
			t.Error("an entry is left")
		}
	})
}

func TestAWaitThatRunsOutLeavesTheQueue(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		a, b, c, d := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb), testlock.NewSession(t, rdb), testlock.NewSession(t, rdb) // who waits together leaves together
		hold := testlock.Take(t, fairlock.New(a, "x"))
		l := newLine(t, rdb)
		short, cancel := context.WithCancel(bg)
		left := make(chan error, 2)
		go func() { _, _, err := fairlock.New(b, "x").Lock(short); left <- err }()
		testlock.Eventually(t, "queued", func() bool { return queued(t, rdb) == 1 })
		go func() {
			_, _, err := fairlock.New(c, "x").Lock(bg, rlock.WaitAtMost(time.Second))
			left <- err
		}()
		testlock.Eventually(t, "queued", func() bool { return queued(t, rdb) == 2 || len(left) > 0 })
		l.join(fairlock.New(d, "x"), 3)
		testlock.WantError(t, "WaitAtMost", <-left, rlock.ErrLocked)
		cancel()
		testlock.WantError(t, "canceled", <-left, context.Canceled)
		testlock.Eventually(t, "only the third is left", func() bool { return queued(t, rdb) == 1 })
		testlock.Unlock(t, hold)
		testlock.Unlock(t, l.next().hold)
	})
}

func TestForceUnlockHandsOnToTheNextInLine(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		hold := testlock.Take(t, fairlock.New(a, "x"))
		l := newLine(t, rdb)
		for i := range 3 {
			l.join(fairlock.New(b, "x"), i)
		}
		if held, err := fairlock.New(a, "x").ForceUnlock(bg); !held || err != nil {
			t.Fatal(held, err)
		}
		l.serve(3)
		testlock.WantError(t, "Unlock after a forced one", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestInspectShowsTheQueueInOrderWithAges(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb, rlock.WithLabel("till 3"))
		hold := testlock.Take(t, fairlock.New(a, "x"))
		l := newLine(t, rdb)
		l.join(fairlock.New(b, "x"), 0)
		<-time.After(30 * time.Millisecond)
		l.join(fairlock.New(a, "x"), 1)
		st := testlock.Inspect(t, fairlock.New(b, "x"))
		if len(st.Queue) != 2 || st.Queue[0].Session != b.ID() || st.Queue[1].Session != a.ID() || st.Session != a.ID() {
			t.Fatalf("%+v", st)
		}
		if first, second := st.Queue[0].Age, st.Queue[1].Age; first < second+30*time.Millisecond || second < 0 {
			t.Errorf("ages %v, %v", first, second)
		}
		if w := st.Queue[0]; w.Label != "till 3" || w.PID != os.Getpid() || w.Host == "" {
			t.Errorf("who waits: %+v", w)
		}
		testlock.Unlock(t, hold)
		got := l.next()
		if st = testlock.Inspect(t, fairlock.New(a, "x")); st.Label != "till 3" || st.PID != os.Getpid() || st.Session != b.ID() {
			t.Errorf("who was handed the lock: %+v", st)
		}
		testlock.Unlock(t, got.hold)
		testlock.Unlock(t, l.next().hold)
	})
}

func TestAFairAndAReentrantLockOfOneNameAreTwoLocks(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		s := testlock.NewSession(t, rdb)
		a, b := testlock.Take(t, fairlock.New(s, "x")), testlock.Take(t, rlock.New(s, "x"))
		testlock.Unlock(t, a)
		testlock.Unlock(t, b)
	})
}

func TestASessionWithRedissonKeysIsRefused(t *testing.T) {
	rdb := testlock.Client(t, "127.0.0.1:1")
	_, _, err := fairlock.New(testlock.NewSession(t, rdb, rlock.RedissonKeys()), "x").Lock(bg)
	if err == nil || !strings.Contains(err.Error(), "Redisson") {
		t.Error(err)
	}
}

func TestAGrantWhoseMessageWasLostIsLearnedByHeartbeat(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		m := fairlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(3*time.Second)), "x")
		raw := holdRaw(t, rdb, "22222222-0000-4000-8000-000000000000:1")
		l := newLine(t, rdb)
		l.join(m, 0)
		testlock.Eventually(t, "it has asked behind its subscription", func() bool { return marked(rdb, "f") == 1 })
		<-time.After(time.Second) // so that it asks again long before the grant is over
		raw("a channel that nobody listens to")
		got := l.next()
		if got.hold.Err() != nil {
			t.Error(got.hold.Err())
		}
		<-time.After(3500 * time.Millisecond) // it is renewed past the liveness time
		if got.hold.Err() != nil {
			t.Error(got.hold.Err())
		}
		testlock.Unlock(t, got.hold)
	})
}

// holdRaw holds the lock by script alone; the function that it returns releases
// it and tells on channels of that prefix.
func holdRaw(t *testing.T, rdb *redis.Client, owner string) func(channels string) {
	t.Helper()
	keys := []string{lockKey, memoryKey, queueKey, aliveKey, "lockline:f:{x}:d"}
	reply, err := script(t, "../internal/queue/lock.lua").Run(bg, rdb, keys, owner, 30000, int64(1)<<52, "", 60000, 0, "lockline:s:", 1, "", 0).Text()
	testlock.Must(t, err)
	words := strings.Fields(reply)
	if words[0] != "G" {
		t.Fatal(reply)
	}
	return func(channels string) {
		t.Helper()
		if reply, err := script(t, "../internal/queue/release.lua").Run(bg, rdb, keys, owner, words[2], channels, 60000, 0, words[2]).Text(); err != nil || !strings.HasPrefix(reply, "R") {
			t.Fatal(reply, err)
		}
	}
}

func TestACancelStormLeavesNoQueueAndNoLock(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	var sessions []*rlock.Session
	for range 4 {
		sessions = append(sessions, testlock.NewSession(t, rdb))
	}
	var wg sync.WaitGroup
	var held, canceled atomic.Int64
	room := make(chan struct{}, 40)
	for i := range 5_000 {
		room <- struct{}{}
		patience := time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))
		wg.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			_, hold, err := fairlock.New(sessions[i%4], "x").Lock(ctx)
			switch {
			case err == nil:
				held.Add(1)
				if err := hold.Unlock(bg); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			case errors.Is(err, context.DeadlineExceeded):
				canceled.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d held, %d canceled", held.Load(), canceled.Load())
	if held.Load() == 0 || canceled.Load() == 0 {
		t.Error("a storm of one kind only proves nothing")
	}
	testlock.Eventually(t, "only the token is left", func() bool {
		keys := rdb.Keys(bg, "*").Val()
		return len(keys) == 1 && keys[0] == memoryKey
	})
	testlock.Works(t, fairlock.New(sessions[0], "x"))
	testlock.NoSubscriptions(t, rdb)
}

func TestWaitersWhoseProcessesWereKilledCostOneLivenessTimeTogether(t *testing.T) {
	const liveness = 2 * time.Second
	server := testredis.Start(t)
	rdb := server.Client(t)
	s := testlock.NewSession(t, rdb, rlock.WithLiveness(liveness))
	hold := testlock.Take(t, fairlock.New(s, "x"))
	var kill []func()
	for range 10 {
		cmd, _ := startWaiters(t, server.Addr, liveness)
		kill = append(kill, func() { testlock.Must(t, cmd.Process.Kill()) })
	}
	testlock.Eventually(t, "100 wait", func() bool { return queued(t, rdb) == 100 })
	l := newLine(t, rdb)
	l.join(fairlock.New(s, "x"), 0)
	for _, k := range kill {
		k()
	}
	start := time.Now()
	testlock.Unlock(t, hold) // goes to a dead one
	got := l.next()
	took := time.Since(start)
	t.Logf("the first living one waited %v", took)
	// One lease of the one who was granted, and a heartbeat; 200 s if each cost its own.
	if took > 3*liveness {
		t.Errorf("the first living one waited %v for 100 dead ones; liveness is %v", took, liveness)
	}
	testlock.Unlock(t, got.hold)
}

func TestAGrantToAFrozenProcessIsTakenBackAfterItsLiveness(t *testing.T) {
	const liveness = time.Second
	server := testredis.Start(t)
	rdb := server.Client(t)
	s := testlock.NewSession(t, rdb, rlock.WithLiveness(liveness))
	hold := testlock.Take(t, fairlock.New(s, "x"))
	cmd, grants := startWaiters(t, server.Addr, liveness)
	testlock.Eventually(t, "10 wait", func() bool { return queued(t, rdb) == 10 })
	testlock.Must(t, cmd.Process.Signal(testredis.StopSignal))
	l := newLine(t, rdb)
	l.join(fairlock.New(s, "x"), 0)
	testlock.Unlock(t, hold)
	got := l.next()
	testlock.Must(t, cmd.Process.Signal(testredis.ContinueSignal))
	// It wakes up to an old grant, and must not believe it.
	select {
	case line := <-grants:
		t.Errorf("two holders: the frozen one says %q", line)
	case <-time.After(2 * liveness):
	}
	testlock.Must(t, got.hold.Err())
	testlock.Unlock(t, got.hold)
	testlock.Receive(t, "the thawed process, which goes on waiting as a newcomer, has the lock", grants)
}

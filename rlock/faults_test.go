package rlock_test

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

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const (
	lockKey   = "lockline:r:{x}"
	memoryKey = "lockline:r:{x}:t"
)

// scripts names the library's scripts by what a request carries of them.
var scripts = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for _, file := range []string{
		"../internal/queue/force.lua", "../internal/queue/inspect.lua", "../internal/protocol/keep.lua", "../internal/protocol/confirm.lua",
		"../internal/queue/lock.lua", "../internal/queue/release.lua", "../internal/queue/heartbeat.lua",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		m[string(text)], m[redis.NewScript(string(text)).Hash()] = file, file
	}
	return m
})

func isScript(r *faultproxy.Request, file string) bool {
	return r.Script() != "" && strings.HasSuffix(scripts()[r.Script()], file)
}

// scriptCalls are the requests of the library since the last Reset.
func scriptCalls(p *faultproxy.Proxy) (calls []faultproxy.Request) {
	for _, r := range p.Requests() {
		if scripts()[r.Script()] != "" {
			calls = append(calls, r)
		}
	}
	return calls
}

// The graveyard: a count that scripts add to drifts when a client resends a command whose reply was lost, as go-redis does.
func TestRepliesLostAThousandTimesLeaveEveryCountExact(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	direct := server.Client(t)
	s := testlock.NewSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(6*time.Second))

	m := testlock.Warm(t, rlock.New(s, "x"))
	always, kept := testlock.Lock(t, rlock.New(s, "renewed all the time"), bg)

	lost := testlock.Lossy(proxy, rand.New(rand.NewPCG(1, 2)), func(r *faultproxy.Request) string {
		file := scripts()[r.Script()]
		if file == "" {
			return ""
		}
		call := file + r.Args[3]
		if file == "../internal/protocol/keep.lua" { // an Extend and the renewals beside it are several, each with copies that are the same
			call += strings.Join(r.Args[5:], " ")
		}
		return call
	})

	check := func(count string, token int64) {
		t.Helper()
		fields := direct.HGetAll(bg, lockKey).Val()
		n := ""
		for field, v := range fields {
			if strings.HasPrefix(field, s.ID()) {
				n = v
			}
		}
		key := lockKey
		if count == "" {
			key = memoryKey
		}
		last, _ := direct.HGet(bg, key, "t").Int64()
		if n != count || last != token {
			t.Fatalf("hold count %q, want %q; last token %d, want %d", n, count, last, token)
		}
	}
	last := int64(0)
	for lost() < 1000 && !t.Failed() {
		ctx, h1 := testlock.Lock(t, m, bg)
		if h1.Token() <= last {
			t.Fatalf("token %d after %d", h1.Token(), last)
		}
		last = h1.Token()
		check("1", last)
		_, h2 := testlock.Lock(t, m, ctx)
		check("2", last)
		testlock.Must(t, h1.Extend(bg, 10*time.Second))
		testlock.Unlock(t, h2)
		check("1", last)
		testlock.Unlock(t, h1) // an unlock that worked reports success
		check("", last)
	}
	// The watchdog's renewals were among them all the time.
	testlock.Renewed(t, kept, 2*time.Second)
	if always.Err() != nil {
		t.Errorf("lost although Redis was there: %v", context.Cause(always))
	}
	proxy.OnRequest(nil)
	testlock.Unlock(t, kept)
}

func TestAnUnlockWhoseReplyWasLostSucceedsThoughOthersHeldTheLockSince(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	a := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"))
	b := testlock.Warm(t, rlock.New(testlock.NewSession(t, server.Client(t)), "x"))
	_, hold := testlock.Lock(t, a, bg)
	cut := false
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if !isScript(r, "release.lua") {
			return faultproxy.Pass
		}
		if !cut {
			cut = true
			return faultproxy.CutReply
		}
		// Before the second copy arrives, somebody else comes and goes, and is there again.
		for range 2 {
			_, theirs, err := b.TryLock(bg)
			if err != nil {
				t.Error(err)
				break
			}
			if err := theirs.Unlock(bg); err != nil {
				t.Error(err)
			}
		}
		_, theirs, err := b.TryLock(bg)
		if err != nil {
			t.Error(err)
		} else {
			testlock.Keep(t, theirs)
		}
		return faultproxy.Pass
	})
	if err := hold.Unlock(bg); err != nil {
		t.Errorf("the unlock worked, but says %v", err)
	}
	if !testlock.Inspect(t, b).Held {
		t.Error("the second copy freed somebody else's lock")
	}
}

func TestAnUnlockOfALostLockSaysSoThoughOthersHeldItSince(t *testing.T) {
	server := testredis.Start(t)
	a, b := rlock.New(testlock.NewSession(t, server.Client(t)), "x"), rlock.New(testlock.NewSession(t, server.Client(t)), "x")
	for others := range 3 {
		_, hold := testlock.Lock(t, a, bg)
		testlock.ForceUnlock(t, b)
		for range others {
			_, theirs := testlock.Lock(t, b, bg)
			testlock.Unlock(t, theirs)
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("after %d other holders: %v", others, err)
		}
	}
}

func TestALockThatWasCanceledWhileRedisWasFrozenIsUndone(t *testing.T) {
	t.Run("by a goroutine", func(t *testing.T) { canceledWhileFrozen(t, 500*time.Millisecond, true) })
	t.Run("by its caller, who sent it", func(t *testing.T) { canceledWhileFrozen(t, 5*time.Millisecond, false) })
}

// canceledWhileFrozen: ran says that the request runs before what undoes it.
func canceledWhileFrozen(t *testing.T, patience time.Duration, ran bool) {
	server := testredis.Start(t)
	rdb := server.Client(t, testlock.Impatient)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, rdb), "x"))
	before := testlock.Inspect(t, m).Token

	server.Freeze()
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	_, none, err := m.Lock(ctx) // returns: the server is thawed only below
	if !errors.Is(err, context.DeadlineExceeded) || none != nil {
		t.Errorf("Lock against a frozen Redis: %v", err)
	}
	server.Thaw()

	testlock.Eventually(t, "the request ran", func() bool {
		n, _ := rdb.HGet(bg, memoryKey, "t").Int64()
		return n > before || !ran
	})
	testlock.Eventually(t, "it was undone", func() bool { return rdb.Exists(bg, lockKey).Val() == 0 })
	testlock.Works(t, m)
}

func TestALateCopyOfALockRequestLeavesNoLockBehind(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	direct := server.Client(t)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), "x"))
	other := testlock.Warm(t, rlock.New(testlock.NewSession(t, direct), "x"))

	t.Run("of an attempt that was given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "lock.lua") {
				cancel()
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
		proxy.Reset()
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		proxy.OnRequest(nil)
		testlock.Eventually(t, "given back", func() bool {
			for _, r := range proxy.Requests() {
				if isScript(&r, "release.lua") {
					return direct.HLen(bg, memoryKey).Val() > 3 // the mark that the attempt is over
				}
			}
			return false
		})
		// Others come and go; then the copy arrives.
		_, theirs := testlock.Lock(t, other, bg)
		testlock.Unlock(t, theirs)
		for _, r := range proxy.Held() {
			testlock.Must(t, proxy.Release(r))
		}
		if st := testlock.Inspect(t, other); st.Held {
			t.Errorf("a lock that nobody knows of: %+v", st)
		}
	})

	t.Run("of an attempt that was granted and unlocked", func(t *testing.T) {
		proxy.Reset()
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		for _, r := range scriptCalls(proxy) {
			reply, err := proxy.Replay(r)
			testlock.Must(t, err)
			if st := testlock.Inspect(t, other); st.Held {
				t.Errorf("%s left a lock behind (%s): %+v", scripts()[r.Script()], reply, st)
			}
		}
	})

	t.Run("that comes too late", func(t *testing.T) {
		proxy.Reset()
		_, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Millisecond)) // not welcome for longer than its lease
		_ = hold.Unlock(bg)
		_, theirs := testlock.Lock(t, other, bg)
		testlock.Unlock(t, theirs)
		<-time.After(time.Second) // clocks are known to a round trip
		for _, r := range proxy.Requests() {
			if isScript(&r, "lock.lua") {
				if reply, err := proxy.Replay(r); err != nil || !strings.HasPrefix(reply, "V ") {
					t.Errorf("%q, %v", reply, err)
				}
			}
		}
	})
}

func TestLateCopiesOfOtherRequestsChangeNothing(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"))
	other := testlock.Warm(t, rlock.New(testlock.NewSession(t, server.Client(t)), "x"))

	proxy.Reset()
	ctx, h1 := testlock.Lock(t, m, bg)
	_, h2 := testlock.Lock(t, m, ctx)
	testlock.Unlock(t, h2)
	// Those of the hold that lives: the count stays, whatever the order.
	for _, r := range scriptCalls(proxy) {
		if _, err := proxy.Replay(r); err != nil {
			t.Fatal(err)
		}
		if st := testlock.Inspect(t, other); st.Count != 1 || st.Token != h1.Token() {
			t.Errorf("after a late %s: %+v", scripts()[r.Script()], st)
		}
	}
	testlock.Unlock(t, h1)
	// Those of a hold that is over, while another lives.
	_, theirs := testlock.Lock(t, other, bg)
	for _, r := range scriptCalls(proxy) {
		if _, err := proxy.Replay(r); err != nil {
			t.Fatal(err)
		}
		if st := testlock.Inspect(t, other); st.Count != 1 || st.Token != theirs.Token() {
			t.Errorf("after a late %s: %+v", scripts()[r.Script()], st)
		}
	}
	testlock.Unlock(t, theirs)
}

func TestRedisDownAtLockIsANetworkErrorAndLeavesNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t, testlock.Impatient)
	m := rlock.New(testlock.NewSession(t, rdb), "x")
	for _, warm := range []bool{false, true} {
		if warm {
			_, hold := testlock.Lock(t, m, bg)
			testlock.Unlock(t, hold)
		}
		server.Kill()
		_, _, err := m.Lock(bg)
		if err == nil || errors.Is(err, rlock.ErrLocked) || errors.Is(err, rlock.ErrLost) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("Lock without a server: %v", err)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		server.Restart(t)
		testlock.Eventually(t, "locked again", func() bool { // go-redis remembers failed dials for a moment
			_, hold, err := m.TryLock(bg)
			if err == nil {
				testlock.Unlock(t, hold)
			}
			return err == nil
		})
		if keys := rdb.Keys(bg, "*").Val(); len(keys) != 1 || keys[0] != memoryKey {
			t.Errorf("left behind: %q", keys)
		}
	}
}

func TestWaitersGoOnAndHoldersLearnOfALoss(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		happens func(t *testing.T, server *testredis.Server)
		lost    bool
	}{
		"restart":      {func(t *testing.T, s *testredis.Server) { s.Kill(); s.Restart(t) }, true},
		"flush":        {func(t *testing.T, s *testredis.Server) { testlock.Must(t, s.Client(t).FlushAll(bg).Err()) }, true},
		"script flush": {func(t *testing.T, s *testredis.Server) { testlock.Must(t, s.Client(t).ScriptFlush(bg).Err()) }, false},
		"pubsub killed": {func(t *testing.T, s *testredis.Server) {
			testlock.Must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "pubsub").Err())
		}, false},
		"all clients killed": {func(t *testing.T, s *testredis.Server) {
			testlock.Must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "normal").Err())
			testlock.Must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "pubsub").Err())
		}, false},
		"pause": {func(t *testing.T, s *testredis.Server) {
			testlock.Must(t, s.Client(t).Do(bg, "client", "pause", "500", "all").Err())
		}, false},
		"read only": {func(t *testing.T, s *testredis.Server) {
			rdb := s.Client(t)
			refusesAGrant(t, rdb,
				func() error { return rdb.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err() },
				func() error { return rdb.Do(bg, "REPLICAOF", "NO", "ONE").Err() })
		}, true},
		"replicas missing": {func(t *testing.T, s *testredis.Server) {
			rdb := s.Client(t)
			refusesAGrant(t, rdb,
				func() error { return rdb.ConfigSet(bg, "min-replicas-to-write", "1").Err() },
				func() error { return rdb.ConfigSet(bg, "min-replicas-to-write", "0").Err() })
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			waits := make(testlock.Waits, 1)
			lease := rlock.WithWatchdogTimeout(3 * time.Second)
			a, b := testlock.NewSession(t, server.Client(t), lease), testlock.NewSession(t, server.Client(t), lease, rlock.WithObserver(waits))
			ctx, hold := testlock.Lock(t, rlock.New(a, "x"), bg)
			got := testlock.Go(testlock.Bounded(t), rlock.New(b, "x"))
			testlock.Receive(t, "waiting", waits)
			c.happens(t, server)
			if c.lost {
				testlock.Receive(t, "the holder learns of it", ctx.Done())
				if context.Cause(ctx) != rlock.ErrLost {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
			} else {
				// It is renewed across the event.
				testlock.Renewed(t, hold, 3*time.Second)
				testlock.Unlock(t, hold)
			}
			next := testlock.Granted(t, got)
			testlock.WantAfter(t, next, hold.Token())
			testlock.Unlock(t, next)
		})
	}
}

// refusesAGrant has a server that refuses writes from begin to end wake the waiters of lock x, which is free then.
func refusesAGrant(t *testing.T, rdb *redis.Client, begin, end func() error) {
	testlock.Must(t, rdb.Del(bg, lockKey).Err())
	testlock.Must(t, begin())
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	testlock.Must(t, rdb.Publish(bg, lockKey, "0").Err())
	testlock.Eventually(t, "refused", func() bool {
		return !strings.Contains(rdb.Info(bg, "stats").Val(), "total_error_replies:0\r\n")
	})
	testlock.Must(t, end())
}

func TestAFullPoolIsAnErrorForNewcomersAndNotTheEndOfAHold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond })
	m := rlock.New(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(3*time.Second)), "x")
	ctx, hold := testlock.Lock(t, m, bg)
	other := rlock.New(testlock.NewSession(t, rdb), "y")

	conn := rdb.Conn() // takes the only connection
	testlock.Must(t, conn.Ping(bg).Err())
	if _, _, err := other.Lock(bg); !errors.Is(err, redis.ErrPoolTimeout) {
		t.Errorf("Lock with a full pool: %v", err)
	}
	<-time.After(1500 * time.Millisecond) // renewals fail meanwhile
	testlock.Must(t, conn.Close())
	testlock.Renewed(t, hold, time.Second)
	if ctx.Err() != nil {
		t.Errorf("lost: %v", context.Cause(ctx))
	}
	testlock.Unlock(t, hold)
	_, hold = testlock.Lock(t, other, bg)
	testlock.Unlock(t, hold)
}

func TestACancelStormLeavesNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	var sessions []*rlock.Session
	for range 4 {
		sessions = append(sessions, testlock.NewSession(t, rdb))
	}
	var wg sync.WaitGroup
	var held, canceled atomic.Int64
	gate := make(chan struct{}, 1000)
	for i := range 10_000 {
		patience, patient := time.Duration(rnd.Int64N(int64(3*time.Millisecond))), i%50 == 0
		if patient { // on a slow machine nobody else gets it
			patience = time.Minute
		}
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			name := "x"
			if i%10 == 0 {
				name = "y"
			}
			ctx, hold, err := rlock.New(sessions[i%len(sessions)], name).Lock(ctx)
			switch {
			case err == nil:
				held.Add(1)
				if i%3 == 0 && !patient {
					<-ctx.Done()
				}
				if err := hold.Unlock(ctx); err != nil {
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
	testlock.OnlyTokens(t, rdb)
	if keys := rdb.Keys(bg, "*").Val(); len(keys) > 2 {
		t.Errorf("two locks leave %q", keys)
	}
	testlock.NoSubscriptions(t, rdb)
	for _, s := range sessions {
		if err := s.Close(); err != nil { // and goleak finds no goroutine
			t.Error(err)
		}
	}
}

func TestShutdownIsBoundedWhenRedisIsFrozen(t *testing.T) {
	server := testredis.Start(t)
	s := testlock.NewSession(t, server.Client(t, testlock.Impatient))
	ctx, _ := testlock.Lock(t, rlock.New(s, "x"), bg)
	server.Freeze()
	bound, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	testlock.WantError(t, "Shutdown", s.Shutdown(bound), context.DeadlineExceeded)
	if context.Cause(ctx) != rlock.ErrClosed {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
	server.Thaw()
}

// The graveyard: bsm/redislock #27, blnk #354: a release with the context of a request that has ended frees nothing.
func TestUnlockIsSentEvenIfItsContextHasEnded(t *testing.T) {
	server := testredis.Start(t)
	m := rlock.New(testlock.NewSession(t, server.Client(t)), "x")
	ctx, cancel := context.WithCancel(bg)
	_, hold := testlock.Lock(t, m, ctx)
	cancel()
	if err := hold.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if testlock.Inspect(t, m).Held {
		t.Error("still held")
	}
	// And while Redis is frozen only the caller's wait ends.
	_, hold = testlock.Lock(t, m, bg)
	server.Freeze()
	short, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	testlock.WantError(t, "Unlock against a frozen Redis", hold.Unlock(short), context.DeadlineExceeded)
	server.Thaw()
	testlock.Eventually(t, "released", func() bool { return !testlock.Inspect(t, m).Held })
}

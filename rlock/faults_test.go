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

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
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
		"lock.lua", "release.lua", "force.lua", "inspect.lua", "../internal/protocol/keep.lua", "../internal/protocol/confirm.lua",
		"../fairlock/lock.lua", "../fairlock/release.lua", "../fairlock/heartbeat.lua",
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

// warm has the server know the scripts and the session know the clock, so that
// from here on every call is one request.
func warm(t testing.TB, m *rlock.Mutex) *rlock.Mutex {
	t.Helper()
	ctx, hold := lock(t, m, bg)
	_, nested := lock(t, m, ctx)
	unlock(t, nested)
	unlock(t, hold)
	return m
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

func impatient(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout = 200*time.Millisecond, 200*time.Millisecond
}

// The graveyard: a count that scripts add to drifts when a client resends a command whose reply was lost, as go-redis does.
func TestRepliesLostAThousandTimesLeaveEveryCountExact(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	direct := server.Client(t)
	s := newSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(6*time.Second))

	m := warm(t, rlock.New(s, "x"))
	always, kept := lock(t, rlock.New(s, "renewed all the time"), bg)

	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // guards rnd, inARow, lost
	inARow, lost := map[string]int{}, map[string]int{}
	total := 0
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		file := scripts()[r.Script()]
		mu.Lock()
		defer mu.Unlock()
		if file == "" {
			return faultproxy.Pass
		}
		// A request is sent four times at most: the fourth gets through.
		call := file + r.Args[3]
		if file == "../internal/protocol/keep.lua" { // an Extend and the renewals beside it are several, each with copies that are the same
			call += strings.Join(r.Args[5:], " ")
		}
		if inARow[call] == 3 || rnd.IntN(2) == 0 {
			inARow[call] = 0
			return faultproxy.Pass
		}
		inARow[call]++
		lost[file]++
		if rnd.IntN(4) == 0 {
			return faultproxy.DropAndCut
		}
		total++
		return faultproxy.CutReply
	})
	lostReplies := func() int {
		mu.Lock()
		defer mu.Unlock()
		return total
	}

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
	for lostReplies() < 1000 && !t.Failed() {
		ctx, h1 := lock(t, m, bg)
		if h1.Token() <= last {
			t.Fatalf("token %d after %d", h1.Token(), last)
		}
		last = h1.Token()
		check("1", last)
		_, h2 := lock(t, m, ctx)
		check("2", last)
		if err := h1.Extend(bg, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		unlock(t, h2)
		check("1", last)
		unlock(t, h1) // an unlock that worked reports success
		check("", last)
	}
	for file, n := range lost {
		t.Logf("%-12s lost %d times", file, n)
	}
	// The watchdog's renewals were among them all the time.
	until := kept.Deadline().Add(2 * time.Second)
	eventually(t, "renewed", func() bool { return kept.Deadline().After(until) || kept.Err() != nil })
	if always.Err() != nil {
		t.Errorf("lost although Redis was there: %v", context.Cause(always))
	}
	proxy.OnRequest(nil)
	unlock(t, kept)
}

func TestAnUnlockWhoseReplyWasLostSucceedsThoughOthersHeldTheLockSince(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	a := warm(t, rlock.New(newSession(t, proxy.Client(t)), "x"))
	b := warm(t, rlock.New(newSession(t, server.Client(t)), "x"))
	_, hold := lock(t, a, bg)
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
		if _, _, err := b.TryLock(bg); err != nil {
			t.Error(err)
		}
		return faultproxy.Pass
	})
	if err := hold.Unlock(bg); err != nil {
		t.Errorf("the unlock worked, but says %v", err)
	}
	if !inspect(t, b).Held {
		t.Error("the second copy freed somebody else's lock")
	}
}

func TestAnUnlockOfALostLockSaysSoThoughOthersHeldItSince(t *testing.T) {
	server := testredis.Start(t)
	a, b := rlock.New(newSession(t, server.Client(t)), "x"), rlock.New(newSession(t, server.Client(t)), "x")
	for others := range 3 {
		_, hold := lock(t, a, bg)
		if _, err := b.ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		for range others {
			_, theirs := lock(t, b, bg)
			unlock(t, theirs)
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("after %d other holders: %v", others, err)
		}
	}
}

func TestALockThatWasCanceledWhileRedisWasFrozenIsUndone(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t, impatient)
	m := warm(t, rlock.New(newSession(t, rdb), "x"))
	before := inspect(t, m).Token

	server.Freeze()
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	_, none, err := m.Lock(ctx) // returns: the server is thawed only below
	if !errors.Is(err, context.DeadlineExceeded) || none != nil {
		t.Errorf("Lock against a frozen Redis: %v", err)
	}
	server.Thaw()

	eventually(t, "the request ran", func() bool {
		n, _ := rdb.HGet(bg, memoryKey, "t").Int64()
		return n > before
	})
	eventually(t, "it was undone", func() bool { return rdb.Exists(bg, lockKey).Val() == 0 })
	_, hold := lock(t, m, bounded(t))
	unlock(t, hold)
}

func TestALateCopyOfALockRequestLeavesNoLockBehind(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	direct := server.Client(t)
	m := warm(t, rlock.New(newSession(t, proxy.Client(t, impatient)), "x"))
	other := warm(t, rlock.New(newSession(t, direct), "x"))

	t.Run("of an attempt that was given up", func(t *testing.T) {
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "lock.lua") {
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
		proxy.Reset()
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		defer cancel()
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		proxy.OnRequest(nil)
		eventually(t, "given back", func() bool {
			for _, r := range proxy.Requests() {
				if isScript(&r, "release.lua") {
					return direct.HLen(bg, memoryKey).Val() > 3 // the mark that the attempt is over
				}
			}
			return false
		})
		// Others come and go; then the copy arrives.
		_, theirs := lock(t, other, bg)
		unlock(t, theirs)
		held := proxy.Held()
		if len(held) != 1 {
			t.Fatalf("%d copies held", len(held))
		}
		if err := proxy.Release(held[0]); err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, other); st.Held {
			t.Errorf("a lock that nobody knows of: %+v", st)
		}
	})

	t.Run("of an attempt that was granted and unlocked", func(t *testing.T) {
		proxy.Reset()
		_, hold := lock(t, m, bg)
		unlock(t, hold)
		for _, r := range scriptCalls(proxy) {
			reply, err := proxy.Replay(r)
			if err != nil {
				t.Fatal(err)
			}
			if st := inspect(t, other); st.Held {
				t.Errorf("%s left a lock behind (%s): %+v", scripts()[r.Script()], reply, st)
			}
		}
	})

	t.Run("that comes too late", func(t *testing.T) {
		proxy.Reset()
		_, hold := lock(t, m, bg, rlock.WithLease(10*time.Millisecond)) // not welcome for longer than its lease
		_ = hold.Unlock(bg)
		_, theirs := lock(t, other, bg)
		unlock(t, theirs)
		<-time.After(20 * time.Millisecond)
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
	m := warm(t, rlock.New(newSession(t, proxy.Client(t)), "x"))
	other := warm(t, rlock.New(newSession(t, server.Client(t)), "x"))

	proxy.Reset()
	ctx, h1 := lock(t, m, bg)
	_, h2 := lock(t, m, ctx)
	unlock(t, h2)
	// Those of the hold that lives: the count stays, whatever the order.
	for _, r := range scriptCalls(proxy) {
		if _, err := proxy.Replay(r); err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, other); st.Count != 1 || st.Token != h1.Token() {
			t.Errorf("after a late %s: %+v", scripts()[r.Script()], st)
		}
	}
	unlock(t, h1)
	// Those of a hold that is over, while another lives.
	_, theirs := lock(t, other, bg)
	for _, r := range scriptCalls(proxy) {
		if _, err := proxy.Replay(r); err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, other); st.Count != 1 || st.Token != theirs.Token() {
			t.Errorf("after a late %s: %+v", scripts()[r.Script()], st)
		}
	}
	unlock(t, theirs)
}

func TestRedisDownAtLockIsANetworkErrorAndLeavesNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t, impatient)
	m := rlock.New(newSession(t, rdb), "x")
	for _, warm := range []bool{false, true} {
		if warm {
			_, hold := lock(t, m, bg)
			unlock(t, hold)
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
		eventually(t, "locked again", func() bool { // go-redis remembers failed dials for a moment
			_, hold, err := m.TryLock(bg)
			if err == nil {
				unlock(t, hold)
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
		"flush":        {func(t *testing.T, s *testredis.Server) { must(t, s.Client(t).FlushAll(bg).Err()) }, true},
		"script flush": {func(t *testing.T, s *testredis.Server) { must(t, s.Client(t).ScriptFlush(bg).Err()) }, false},
		"pubsub killed": {func(t *testing.T, s *testredis.Server) {
			must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "pubsub").Err())
		}, false},
		"all clients killed": {func(t *testing.T, s *testredis.Server) {
			must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "normal").Err())
			must(t, s.Client(t).ClientKillByFilter(bg, "TYPE", "pubsub").Err())
		}, false},
		"pause": {func(t *testing.T, s *testredis.Server) {
			must(t, s.Client(t).Do(bg, "client", "pause", "500", "all").Err())
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
			waits := make(waitingSignal, 1)
			lease := rlock.WithWatchdogTimeout(3 * time.Second)
			a, b := newSession(t, server.Client(t), lease), newSession(t, server.Client(t), lease, rlock.WithObserver(waits))
			ctx, hold := lock(t, rlock.New(a, "x"), bg)
			got := make(chan *rlock.Hold, 1)
			go func() {
				_, h, err := rlock.New(b, "x").Lock(bounded(t))
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
			within(t, "waiting", waits)
			c.happens(t, server)
			if c.lost {
				within(t, "the holder learns of it", ctx.Done())
				if context.Cause(ctx) != rlock.ErrLost {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
			} else {
				// It is renewed across the event.
				until := hold.Deadline().Add(3 * time.Second)
				eventually(t, "renewed", func() bool { return hold.Deadline().After(until) || hold.Err() != nil })
				unlock(t, hold)
			}
			next := <-got
			if next == nil {
				return
			}
			if next.Token() <= hold.Token() {
				t.Errorf("token %d after %d", next.Token(), hold.Token())
			}
			unlock(t, next)
		})
	}
}

// refusesAGrant has a server that refuses writes from begin to end wake the waiters of lock x, which is free then.
func refusesAGrant(t *testing.T, rdb *redis.Client, begin, end func() error) {
	must(t, rdb.Del(bg, lockKey).Err())
	must(t, begin())
	must(t, rdb.ConfigResetStat(bg).Err())
	must(t, rdb.Publish(bg, lockKey, "0").Err())
	eventually(t, "refused", func() bool {
		return !strings.Contains(rdb.Info(bg, "stats").Val(), "total_error_replies:0\r\n")
	})
	must(t, end())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFullPoolIsAnErrorForNewcomersAndNotTheEndOfAHold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond })
	m := rlock.New(newSession(t, rdb, rlock.WithWatchdogTimeout(3*time.Second)), "x")
	ctx, hold := lock(t, m, bg)
	other := rlock.New(newSession(t, rdb), "y")

	conn := rdb.Conn() // takes the only connection
	must(t, conn.Ping(bg).Err())
	if _, _, err := other.Lock(bg); !errors.Is(err, redis.ErrPoolTimeout) {
		t.Errorf("Lock with a full pool: %v", err)
	}
	<-time.After(1500 * time.Millisecond) // renewals fail meanwhile
	must(t, conn.Close())
	until := hold.Deadline().Add(time.Second)
	eventually(t, "renewed again", func() bool { return hold.Deadline().After(until) || hold.Err() != nil })
	if ctx.Err() != nil {
		t.Errorf("lost: %v", context.Cause(ctx))
	}
	unlock(t, hold)
	_, hold = lock(t, other, bg)
	unlock(t, hold)
}

func TestACancelStormLeavesNothing(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	var sessions []*rlock.Session
	for range 4 {
		sessions = append(sessions, newSession(t, rdb))
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
	eventually(t, "nothing but tokens is left", func() bool {
		keys := rdb.Keys(bg, "*").Val()
		for _, key := range keys {
			if !strings.HasSuffix(key, "}:t") {
				return false
			}
		}
		return len(keys) <= 2
	})
	eventually(t, "no subscription is left", func() bool { return len(rdb.PubSubChannels(bg, "*").Val()) == 0 })
	for _, s := range sessions {
		if err := s.Close(); err != nil { // and goleak finds no goroutine
			t.Error(err)
		}
	}
}

func TestShutdownIsBoundedWhenRedisIsFrozen(t *testing.T) {
	server := testredis.Start(t)
	s := newSession(t, server.Client(t, impatient))
	ctx, _ := lock(t, rlock.New(s, "x"), bg)
	server.Freeze()
	bound, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(bound); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if context.Cause(ctx) != rlock.ErrClosed {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
	server.Thaw()
}

// The graveyard: bsm/redislock #27, blnk #354: a release with the context of a request that has ended frees nothing.
func TestUnlockIsSentEvenIfItsContextHasEnded(t *testing.T) {
	server := testredis.Start(t)
	m := rlock.New(newSession(t, server.Client(t)), "x")
	ctx, cancel := context.WithCancel(bg)
	_, hold := lock(t, m, ctx)
	cancel()
	if err := hold.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if inspect(t, m).Held {
		t.Error("still held")
	}
	// And while Redis is frozen only the caller's wait ends.
	_, hold = lock(t, m, bg)
	server.Freeze()
	short, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if err := hold.Unlock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Unlock against a frozen Redis: %v", err)
	}
	server.Thaw()
	eventually(t, "released", func() bool { return !inspect(t, m).Held })
}

package contract

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// A realProcess makes a process with new sessions.
type realProcess func(options ...rlock.SessionOption) *process

// RunReal runs the tests that need real servers for the kind k. If a lock of this kind uses one server, most
// of the tests use the shared server.
func RunReal(t *testing.T, k Kind) {
	if k.Rival == nil {
		k.Rival = k.New
	}
	all := maps.Clone(real)
	maps.Copy(all, forgotten)
	for name, test := range all {
		if test.needs&^k.Has == 0 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var servers []*redis.Client
				connect := []func() *redis.Client{func() *redis.Client {
					return testlock.SharedToo(t, servers[0])
				}}
				if k.Servers <= 1 {
					servers = append(servers, testlock.Shared(t))
				} else {
					connect = nil
					for range k.Servers {
						server := testredis.Start(t)
						servers = append(servers, server.Client(t))
						connect = append(connect, func() *redis.Client { return server.Client(t) })
					}
				}
				test.run(t, k, servers, func(options ...rlock.SessionOption) *process {
					p := &process{}
					for _, connect := range connect {
						p.sessions = append(p.sessions, testlock.NewSession(t, connect(), options...))
					}
					p.lock, p.rival = k.New(p.sessions), k.Rival(p.sessions)
					return p
				})
			})
		}
	}
	if k.Shared { // package redisson has its own tests of rights and of demoted servers
		return
	}
	t.Run("TheDocumentedRightsSuffice", func(t *testing.T) {
		t.Parallel()
		documentedRights(t, k)
	})
	for what, servesStale := range map[string]bool{"AnswersWhatItKnows": true, "AnswersNothing": false} {
		t.Run("ADemotedServerDecidesNothingIfIt"+what, func(t *testing.T) {
			t.Parallel()
			movedEndpoint(t, k, servesStale)
		})
	}
}

// A realTest is a test on a real server, for kinds with the traits that it needs.
type realTest struct {
	needs Trait
	run   func(t *testing.T, k Kind, servers []*redis.Client, process realProcess)
}

var real = map[string]realTest{
	"AWaiterIsWokenByTheUnlockOfAnotherProcess": {0, func(
		t *testing.T, _ Kind, servers []*redis.Client, process realProcess,
	) {
		waits := make(testlock.Waits, 1)
		one, other := process(), process(rlock.WithObserver(waits))
		_, first := testlock.Lock(t, one.lock("x"), bg)
		_, _, err := other.rival("x").TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		got := testlock.Go(testlock.Bounded(t), other.rival("x"))
		testlock.Receive(t, "waiting", waits)
		start := time.Now()
		testlock.Unlock(t, first)
		second := testlock.Granted(t, got)
		if took := time.Since(start); took > lease/2 {
			t.Errorf("woken after %v, by the lease and not by the message", took)
		}
		if first.Token() != 0 {
			testlock.WantAfter(t, second, first.Token())
		}
		testlock.Unlock(t, second)
		left(t, servers)
	}},
	"ReentryFollowsTheContext": {Reenters, func(
		t *testing.T, k Kind, servers []*redis.Client, process realProcess,
	) {
		one, other := process(), process()
		ctx := bg
		var holds []*rlock.Hold
		for range 3 {
			var hold *rlock.Hold
			ctx, hold = testlock.Lock(t, one.lock("x"), ctx)
			holds = append(holds, hold)
		}
		for i, at := range []int{1, 0, 2} {
			if st := inspect(t, one.lock("x")); !st.Held ||
				k.Has&Counts != 0 && k.Servers <= 1 && st.Count != 3-i {
				t.Errorf("with %d holds: %+v", 3-i, st)
			}
			_, _, err := other.rival("x").TryLock(bg)
			testlock.WantError(t, "another process", err, rlock.ErrLocked)
			testlock.Unlock(t, holds[at])
		}
		testlock.Works(t, other.rival("x"))
		left(t, servers)
	}},
	"AForcedUnlockEndsTheHold": {0, func(t *testing.T, _ Kind, servers []*redis.Client, process realProcess) {
		one, other := process(), process()
		ctx, hold := testlock.Lock(t, one.lock("x"), bg)
		force(t, other.lock("x"))
		testlock.WantError(t, "Extend", hold.Extend(bg, time.Minute), rlock.ErrLost)
		testlock.Receive(t, "its context ends", ctx.Done())
		testlock.Works(t, other.rival("x"))
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		left(t, servers)
	}},
	// Proves: no trace
	"ACancelStormLeavesNothing": {0, func(
		t *testing.T, _ Kind, servers []*redis.Client, process realProcess,
	) {
		locks := []Lock{process().lock("x"), process().lock("x"), process().rival("x")}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for range 20 {
					ctx, cancel := context.WithTimeout(bg, time.Duration(rnd.IntN(3000))*time.Microsecond)
					if _, hold, err := locks[i%len(locks)].Lock(ctx); err == nil {
						if err := hold.Unlock(bg); err != nil {
							t.Error(err)
						}
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		testlock.Works(t, locks[2])
		left(t, servers)
	}},
}

// left checks that the servers have no subscriptions, and no keys except keys that only remember tokens.
func left(t *testing.T, servers []*redis.Client) {
	t.Helper()
	for _, rdb := range servers {
		testlock.OnlyTokens(t, rdb)
		testlock.NoSubscriptions(t, rdb)
	}
}

// documentedRights makes all calls that a program makes with a lock, as a user with the rights of
// docs/operations.md.
func documentedRights(t *testing.T, k Kind) {
	one, other := &process{}, &process{}
	waits := make(testlock.Waits, 10)
	var admins []*redis.Client
	for range max(k.Servers, 1) {
		server := testredis.Start(t)
		admins = append(admins, server.Client(t))
		rdb := testlock.DocumentedUser(t, server)
		one.sessions = append(one.sessions, testlock.NewSession(t, rdb, rlock.WithWaiterTimeout(time.Second)))
		other.sessions = append(other.sessions,
			testlock.NewSession(t, rdb, rlock.WithWaiterTimeout(time.Second), rlock.WithObserver(waits)))
	}
	l, rival := k.New(one.sessions)("x"), k.Rival(other.sessions)("x")
	ctx, hold := testlock.Lock(t, l, bg)
	if k.Has&Reenters != 0 {
		_, nested := testlock.Lock(t, l, ctx)
		testlock.Unlock(t, nested)
	}
	testlock.Must(t, hold.Extend(bg, time.Minute))
	inspect(t, l)
	_, _, err := rival.Lock(bg, rlock.WaitAtMost(1500*time.Millisecond)) // long enough for a heartbeat
	testlock.WantError(t, "a wait that ran out", err, rlock.ErrLocked)
	for len(waits) > 0 {
		<-waits
	}
	got := testlock.Go(testlock.Bounded(t), rival)
	testlock.Receive(t, "waiting", waits)
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
	_, hold = testlock.Lock(t, l, bg)
	force(t, l)
	testlock.WantError(t, "the unlock of what was forced", hold.Unlock(bg), rlock.ErrLost)
	_, _ = testlock.Lock(t, l, bg) // Close releases this hold
	testlock.Must(t, one.close())
	testlock.Must(t, other.close())
	for _, admin := range admins {
		entries, err := admin.ACLLog(bg, 100).Result()
		testlock.Must(t, err)
		for _, e := range entries {
			if !strings.HasPrefix(e.Object, "client") { // go-redis needs no CLIENT command
				t.Errorf("refused: %s", e.Object)
			}
		}
	}
}

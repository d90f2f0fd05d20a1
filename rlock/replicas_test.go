package rlock_test

import (
	"context"
	"errors"
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
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// confirmed is more time than replicas need, refused is for those that stand still.
const (
	confirmed = 2 * time.Second
	refused   = 100 * time.Millisecond
)

// replicated runs a test for each kind of lock that replicas can confirm.
func replicated(t *testing.T, test func(t *testing.T, newMutex testlock.Maker)) {
	for kind, newMutex := range map[string]testlock.Maker{"reentrant": rlock.New, "fair": fairlock.New} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newMutex)
		})
	}
}

// sequence names the requests: the script's file, or the command.
func sequence(p *faultproxy.Proxy) (names []string) {
	for _, r := range p.Requests() {
		name := strings.ToUpper(r.Args[0])
		if file := scripts()[r.Script()]; file != "" {
			name = file[strings.LastIndexByte(file, '/')+1:]
		}
		names = append(names, name)
	}
	return names
}

func wantSequence(t *testing.T, p *faultproxy.Proxy, what, want string) {
	t.Helper()
	if got := strings.Join(sequence(p), " "); got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
	p.Reset()
}

func TestReplicasConfirmEachGrantByOneMoreRequest(t *testing.T) {
	replicated(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		server.StartReplica(t)
		proxy := faultproxy.New(t, server.Addr)
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, confirmed)), "x"))
		proxy.Reset()

		ctx, hold := testlock.Lock(t, m, bg)
		wantSequence(t, proxy, "a lock", "lock.lua confirm.lua WAIT")
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		wantSequence(t, proxy, "a re-entry", "keep.lua keep.lua")

		testlock.Unlock(t, hold)
		wantSequence(t, proxy, "an unlock", "release.lua")
		_, hold = testlock.TryLock(t, m, bg)
		wantSequence(t, proxy, "TryLock", "lock.lua confirm.lua WAIT")
		testlock.Unlock(t, hold)
	})
}

func TestAHandOverInMemoryBuildsOnWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	proxy := faultproxy.New(t, server.Addr)
	waits := make(testlock.Waits, 1)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, confirmed), rlock.WithObserver(waits), rlock.WithStreak(time.Minute)), "x"))
	_, hold := testlock.Lock(t, m, bg)
	got := testlock.Go(bg, m)
	testlock.Receive(t, "waiting", waits)
	proxy.Reset()
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, got)
	wantSequence(t, proxy, "a hand-over", "")
	testlock.Unlock(t, next)
}

func TestAScriptThatTheServerForgotIsConfirmedAsWell(t *testing.T) {
	server := testredis.Start(t)
	server.StartReplica(t)
	rdb := server.Client(t)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, rdb, rlock.WithReplicas(1, confirmed)), "x"))
	testlock.Must(t, rdb.ScriptFlush(bg).Err())
	_, hold := testlock.Lock(t, m, bg)
	testlock.Unlock(t, hold)
}

func TestWhatReplicasDoNotConfirmIsGivenBackAndFreeForOthers(t *testing.T) {
	replicated(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		server.StartReplica(t)
		frozen := server.StartReplica(t)
		rdb := server.Client(t)
		one := newMutex(testlock.NewSession(t, rdb, rlock.WithReplicas(1, confirmed)), "x")
		both := newMutex(testlock.NewSession(t, rdb, rlock.WithReplicas(2, time.Second)), "x") // the other one confirms
		frozen.Freeze()

		_, hold := testlock.Lock(t, one, bg)
		testlock.Unlock(t, hold)
		for _, take := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){both.Lock, both.TryLock} {
			_, hold, err := take(bg)
			var e *rlock.NotReplicatedError
			if !errors.Is(err, rlock.ErrNotReplicated) || !errors.As(err, &e) || e.Confirmed != 1 || e.Wanted != 2 || e.Name != "x" || hold != nil {
				t.Fatalf("with one of two replicas: %v, %+v", err, e)
			}
			// Its lease is 30 s: only what was given back is free in time for this.
			_, hold = testlock.Lock(t, one, bg, rlock.WaitAtMost(10*time.Second))
			testlock.Unlock(t, hold)
		}
		frozen.Thaw()
		testlock.Eventually(t, "confirmed by both", func() bool {
			_, hold, err := both.Lock(bg)
			if err == nil {
				testlock.Unlock(t, hold)
			} else if !errors.Is(err, rlock.ErrNotReplicated) {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

// The grant was written by another connection, so WAIT alone would confirm it at once.
func TestAFairLockThatWasHandedOverByMessageIsConfirmedByItsNewHolder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	replica := server.StartReplica(t)
	proxy := faultproxy.New(t, server.Addr)
	waits := make(testlock.Waits, 1)
	holder := fairlock.New(testlock.NewSession(t, server.Client(t)), "x")
	handOver := func(timeout time.Duration) error {
		waiter := fairlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, timeout), rlock.WithObserver(waits)), "x")
		_, hold := testlock.Lock(t, holder, bg)
		failed := make(chan error, 1)
		go func() { failed <- testlock.Cycle(bg, waiter) }()
		testlock.Receive(t, "waiting", waits)
		proxy.Reset()
		testlock.Unlock(t, hold)
		return <-failed
	}
	testlock.Must(t, handOver(confirmed))
	got := strings.NewReplacer("keep.lua ", "", "heartbeat.lua ", "", "HELLO ", "", "CLIENT ", "").Replace(strings.Join(sequence(proxy), " ") + " ") // a first lease may be renewed meanwhile, and the waiter ask
	if !strings.HasSuffix(got, "confirm.lua WAIT release.lua ") || strings.Contains(got, "lock.lua") {
		t.Errorf("a hand-over: %s", got)
	}
	replica.Freeze()
	testlock.WantError(t, "a hand-over that no replica knows of", handOver(refused), rlock.ErrNotReplicated)
	_, hold := testlock.Lock(t, holder, bg, rlock.WaitAtMost(5*time.Second)) // less than the waiter's liveness
	testlock.Unlock(t, hold)
	replica.Thaw()
}

func TestAGrantThatReplicasRefusedIsHandedToNobodyInMemory(t *testing.T) {
	replicated(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		replica := server.StartReplica(t)
		proxy := faultproxy.New(t, server.Addr)
		var acquired atomic.Int32
		count := testlock.Observer(func(e rlock.Event) {
			if e.Kind == rlock.Acquired {
				acquired.Add(1)
			}
		})
		s := testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, refused), rlock.WithStreak(time.Minute), rlock.WithObserver(count))
		m := newMutex(s, "x")
		replica.Freeze()
		var wg sync.WaitGroup
		for i := range 6 {
			ctx := bg
			if i%2 == 0 {
				ctx = rlock.WithOwner(ctx) // two who share an owner enter together
			}
			for range 2 - i%2 {
				wg.Go(func() {
					if _, _, err := m.Lock(ctx); !errors.Is(err, rlock.ErrNotReplicated) {
						t.Errorf("with no replica: %v", err)
					}
				})
			}
		}
		wg.Wait()
		if n := acquired.Load(); n != 0 {
			t.Errorf("%d have held it", n)
		}
		testlock.Eventually(t, "each of six owners has given it back", func() bool {
			released := 0
			for _, r := range proxy.Requests() {
				if isScript(&r, "release.lua") {
					released++
				}
			}
			return released >= 6
		})
		replica.Thaw()
	})
}

func TestAConfirmationWhoseReplyIsLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	proxy := faultproxy.New(t, server.Addr)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, confirmed)), "x"))
	for _, lost := range []string{"confirm.lua", "WAIT"} {
		var n atomic.Int32
		proxy.Reset()
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if (r.Is(lost) || isScript(r, lost)) && n.Add(1) == 1 {
				return faultproxy.CutReply
			}
			return faultproxy.Pass
		})
		_, hold := testlock.Lock(t, m, bg)
		sent := 0
		for _, name := range sequence(proxy) {
			if name == "confirm.lua" {
				sent++
			}
		}
		if sent != 2 {
			t.Errorf("without the reply to %s: %d confirmations: %q", lost, sent, sequence(proxy))
		}
		copies := proxy.Requests()
		testlock.Unlock(t, hold)
		next := rlock.New(testlock.NewSession(t, server.Client(t)), "x")
		_, hold = testlock.Lock(t, next, bg, rlock.WithLease(10*time.Second))
		for _, r := range copies {
			if isScript(&r, "confirm.lua") { // and a late copy changes nothing
				if reply, err := proxy.Replay(r); err != nil || !strings.Contains(reply, "L") {
					t.Errorf("a late copy: %q, %v", reply, err)
				}
			}
		}
		if left := testlock.Inspect(t, next).Remaining; left > 10*time.Second {
			t.Errorf("a late copy has lengthened another one's lease to %v", left)
		}
		testlock.Unlock(t, hold)
	}
}

func TestACanceledConfirmationGivesBack(t *testing.T) {
	replicated(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		replica := server.StartReplica(t)
		proxy := faultproxy.New(t, server.Addr)
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, confirmed)), "x"))
		replica.Freeze()
		ctx, cancel := context.WithCancel(bg)
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Is("WAIT") {
				cancel()
			}
			return faultproxy.Pass
		})
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		other := newMutex(testlock.NewSession(t, server.Client(t)), "x")
		_, hold := testlock.Lock(t, other, bg, rlock.WaitAtMost(10*time.Second))
		testlock.Unlock(t, hold)
		replica.Thaw()
	})
}

func TestAGrantThatIsGoneBeforeItIsConfirmedIsNotBelieved(t *testing.T) {
	replicated(t, func(t *testing.T, newMutex testlock.Maker) {
		server := testredis.Start(t)
		server.StartReplica(t)
		proxy := faultproxy.New(t, server.Addr)
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, confirmed)), "x"))
		operator := newMutex(testlock.NewSession(t, server.Client(t)), "x")
		once := sync.OnceFunc(func() {
			if _, err := operator.ForceUnlock(bg); err != nil {
				t.Error(err)
			}
		})
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "confirm.lua") {
				once()
			}
			return faultproxy.Pass
		})
		proxy.Reset()
		hold := testlock.Take(t, m)
		if n := proxy.Count("WAIT"); n != 2 {
			t.Errorf("%d confirmations: %q", n, sequence(proxy))
		}
		if st := testlock.Inspect(t, operator); !st.Held || st.Token != hold.Token() {
			t.Errorf("holds %d: %+v", hold.Token(), st)
		}
		testlock.Unlock(t, hold)
	})
}

func TestSeveralLocksOfOneRequestAreConfirmedAtOnce(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	replica := server.StartReplica(t)
	proxy := faultproxy.New(t, server.Addr)

	three := func(timeout time.Duration) *multilock.MultiLock {
		s := testlock.NewSession(t, proxy.Client(t), rlock.WithReplicas(1, timeout))
		return multilock.New(rlock.New(s, "a"), rlock.New(s, "b"), rlock.New(s, "c"))
	}
	all := three(confirmed)
	_, hold := testlock.Lock(t, all, bg)
	testlock.Must(t, hold.Unlock(bg))
	proxy.Reset()
	_, hold = testlock.Lock(t, all, bg)
	if n := len(proxy.Requests()); n != 3 || proxy.Count("WAIT") != 1 {
		t.Errorf("%d requests: %q", n, sequence(proxy))
	}
	testlock.Must(t, hold.Unlock(bg))

	replica.Freeze()
	var e *rlock.NotReplicatedError
	if _, _, err := three(refused).Lock(bg); !errors.As(err, &e) || e.Confirmed != 0 {
		t.Errorf("with no replica: %v", err)
	}
	other := testlock.NewSession(t, server.Client(t))
	for _, name := range []string{"a", "b", "c"} {
		_, hold := testlock.Lock(t, rlock.New(other, name), bg, rlock.WaitAtMost(10*time.Second))
		testlock.Unlock(t, hold)
	}
	replica.Thaw()
}

func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 1, 1)
	replica := cluster.Nodes[1]
	rdb := cluster.Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb, rlock.WithReplicas(1, confirmed)), "x"), bg)
	testlock.Unlock(t, hold)
	replica.Freeze()
	m := rlock.New(testlock.NewSession(t, rdb, rlock.WithReplicas(1, refused)), "x")
	if _, _, err := m.Lock(bg); !errors.Is(err, rlock.ErrNotReplicated) {
		t.Errorf("with no replica: %v", err)
	}
	replica.Thaw()
}

func TestWhatWithReplicasRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1", ReadTimeout: time.Second})
	defer rdb.Close()
	for want, options := range map[string][]rlock.SessionOption{
		"-1 replicas":           {rlock.WithReplicas(-1, time.Second)},
		"shorter than":          {rlock.WithReplicas(1, 0)},
		"ReadTimeout":           {rlock.WithReplicas(1, time.Second)},
		"not twice as long":     {rlock.WithReplicas(1, 600*time.Millisecond), rlock.WithWatchdogTimeout(time.Second)},
		"may know several serv": {rlock.WithReplicas(1, 100*time.Millisecond)},
	} {
		var client rlock.Client = rdb
		if strings.HasPrefix(want, "may") {
			client = struct{ rlock.Client }{rdb}
		}
		if _, err := rlock.NewSession(client, options...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	s := testlock.NewSession(t, rdb, rlock.WithReplicas(1, 100*time.Millisecond))
	if _, _, err := rlock.New(s, "x", rlock.WithLease(150*time.Millisecond)).Lock(bg); err == nil || !strings.Contains(err.Error(), "not twice as long") {
		t.Errorf("a short lease: %v", err)
	}
	if _, _, err := multilock.NewRedLock("x", s).Lock(bg); err == nil || !strings.Contains(err.Error(), "WithReplicas") {
		t.Errorf("a RedLock: %v", err)
	}
	testlock.NewSession(t, rdb, rlock.WithReplicas(0, 0))
}

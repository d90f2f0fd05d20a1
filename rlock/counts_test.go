package rlock_test

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestAnUncontendedLockIsTwoRequests(t *testing.T) {
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	// A request that is late is sent again, on a new connection. So some of them may be more, but not for long.
	mostly := func(what string, n int, cycle func()) {
		testlock.Eventually(t, what, func() bool {
			wrong := 0
			for range 10 {
				proxy.Reset()
				cycle()
				if proxy.Count() != n {
					t.Logf("%s: %d requests: %v", what, proxy.Count(), proxy.Requests())
					wrong++
				}
			}
			return wrong <= 1
		})
	}
	mostly("Lock and Unlock", 2, func() {
		_, hold := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, hold)
		if calls := scriptCalls(proxy); len(calls) < 2 || !isScript(&calls[0], "lock.lua") || !isScript(&calls[len(calls)-1], "release.lua") {
			t.Fatal(calls)
		}
	})
	// A re-entry and its unlock are two more, and TryLock of a held lock is one.
	outer, hold := testlock.Lock(t, m, ctx)
	mostly("re-entry", 2, func() {
		_, nested := testlock.Lock(t, m, outer)
		testlock.Unlock(t, nested)
	})
	other := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "y"))
	testlock.Unlock(t, hold)
	hold = testlock.Take(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "y"))
	mostly("TryLock", 1, func() {
		if _, _, err := other.TryLock(ctx); err == nil {
			t.Fatal("taken twice")
		}
	})
	testlock.Unlock(t, hold)
}

// Waking the threads for a goroutine takes longer than a request to a server nearby.
func TestAnUncontendedLockStartsNoGoroutines(t *testing.T) {
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	if metrics.Read(created); created[0].Value.Kind() != metrics.KindUint64 {
		t.Skip("before Go 1.26, nothing tells")
	}
	for name, start := range map[string]func(t *testing.T) rlock.Client{
		"server":  func(t *testing.T) rlock.Client { return testredis.Start(t).Client(t) },
		"Cluster": func(t *testing.T) rlock.Client { return testredis.StartCluster(t, 3, 0).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			m := testlock.Warm(t, rlock.New(testlock.NewSession(t, start(t)), "x"))
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			testlock.Eventually(t, "hardly any for 100 locks", func() bool { // an answer may be late, and a client has some of its own
				metrics.Read(created)
				before := created[0].Value.Uint64()
				for range 100 {
					_, hold := testlock.Lock(t, m, ctx)
					testlock.Unlock(t, hold)
				}
				metrics.Read(created)
				n := created[0].Value.Uint64() - before
				t.Logf("%d goroutines", n)
				return n < 20
			})
		})
	}
}

// bare is what Lock and Unlock cost at the least: two EVALSHA with the same
// arguments and replies, through go-redis.
func bare(tb testing.TB, rdb *redis.Client) func() {
	s1, s2 := redis.NewScript("return 'G 1795210080033706 1795210080033706'"), redis.NewScript("return 'R'")
	for _, s := range []*redis.Script{s1, s2} {
		testlock.Must(tb, s.Load(bg, rdb).Err())
	}
	ctx, cancel := context.WithCancel(bg)
	tb.Cleanup(cancel)
	sha1, sha2 := s1.Hash(), s2.Hash()
	owner, about := "285475da-9152-4c83-822a-67ee2f116a79:52", "4711@host label"
	now := time.Now().UnixMicro()
	return func() {
		keys := []string{"lockline:r:{x}", "lockline:r:{x}:t"}
		testlock.Must(tb, rdb.EvalSha(ctx, sha1, keys, owner, 30000, now, about, 60000).Err())
		testlock.Must(tb, rdb.EvalSha(ctx, sha2, keys, owner, "1795210080033706", "lockline:r:{x}", 60000, 0).Err())
	}
}

func lockUnlock(tb testing.TB, rdb *redis.Client) func() {
	m := testlock.Warm(tb, rlock.New(testlock.NewSession(tb, rdb), "x"))
	ctx, cancel := context.WithCancel(bg)
	tb.Cleanup(cancel)
	return func() {
		_, hold, err := m.Lock(ctx)
		testlock.Must(tb, err)
		testlock.Must(tb, hold.Unlock(ctx))
	}
}

func TestAnUncontendedLockAllocatesAtMostAFifthMoreThanBareScripts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, too")
	}
	rdb := testredis.Start(t).Client(t)
	least, cycle := testing.AllocsPerRun(2000, bare(t, rdb)), lockUnlock(t, rdb)
	testlock.Eventually(t, "at most 1.2 times as many", func() bool { // requests are not prompt for a while once an answer was late
		ours := testing.AllocsPerRun(500, cycle)
		t.Logf("%v allocations, bare %v: %.2f times", ours, least, ours/least)
		return ours <= 1.2*least
	})
}

func BenchmarkLockUnlock(b *testing.B) {
	rdb := testredis.Start(b).Client(b)
	for name, f := range map[string]func(){"lockline": lockUnlock(b, rdb), "bare": bare(b, rdb)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func TestWaitersSendNothingButPingsAndOneHeartbeatPerSession(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, server.Client(t)), "x"), bg, rlock.WithLease(30*time.Second))

	waits := make(testlock.Waits, 200)
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	start := time.Now()
	for range 4 {
		m := rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithObserver(waits)), "x")
		for range 50 {
			wg.Go(func() {
				if _, _, err := m.Lock(ctx); err == nil {
					t.Error("two holders")
				}
			})
		}
	}
	for range 200 {
		testlock.Receive(t, "waiting", waits)
	}
	direct := server.Client(t)
	testlock.Eventually(t, "all listen", func() bool { return seen(direct) == 4 })
	<-time.After(time.Until(start.Add(time.Second)))
	proxy.Reset()
	<-time.After(10 * time.Second)
	pings, heartbeats := 0, 0
	for _, r := range proxy.Requests() {
		switch {
		case r.Is("PING"):
			pings++
		case isScript(&r, "heartbeat.lua"):
			heartbeats++
		default:
			t.Errorf("%v", r.Args)
		}
	}
	if pings == 0 || heartbeats == 0 || heartbeats > 4*4 { // in 10 s, which is the liveness time
		t.Errorf("%d pings, %d heartbeats of 4 sessions", pings, heartbeats)
	}
	cancel()
	wg.Wait()
	testlock.Unlock(t, hold)
}

func TestAWakeUpCostsOneRequestPerSessionWhateverTheNumberOfWaiters(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	waits := make(testlock.Waits, 40)
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	got := make(chan *rlock.Hold, 40)
	for range 2 {
		m := rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithObserver(waits)), "x")
		_, _, _ = m.TryLock(bg) // script and clock are known
		for range 20 {
			wg.Go(func() {
				if _, h, err := m.Lock(ctx); err == nil {
					got <- h
				}
			})
		}
	}
	for range 40 {
		testlock.Receive(t, "waiting", waits)
	}
	// Each session asks, subscribes, and asks again when that is confirmed.
	testlock.Eventually(t, "both have asked again", func() bool { return seen(rdb) == 2 })
	proxy.Reset()
	testlock.Unlock(t, hold)
	h := <-got
	if n := len(scriptCalls(proxy)); n > 2 {
		t.Errorf("%d requests for one wake-up of 2 sessions", n)
	}
	cancel()
	testlock.Unlock(t, h)
	wg.Wait()
	for len(got) > 0 { // woken in the instant of the cancel
		_ = (<-got).Unlock(bg)
	}
}

func TestAHundredThousandHeldLocksAreCheap(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("memory is not measured under the race detector, nor in a short run")
	}
	const n = 100_000
	rdb := testredis.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = 2 }) // each connection has 64 KB
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Hour))         // no renewal is under way when memory is measured
	names := make([]string, n)
	for i := range names {
		names[i] = "orders:" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	_, first := testlock.Lock(t, rlock.New(s, "first"), bg) // connections and tables are there
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	goroutines, before := runtime.NumGoroutine(), memory()
	holds := make([]*rlock.Hold, n)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < n; i += 16 {
				_, h, err := rlock.New(s, names[i]).Lock(bg)
				if err != nil {
					t.Error(err)
					return
				}
				holds[i] = h
			}
		})
	}
	wg.Wait()
	testlock.Eventually(t, "at most three goroutines at rest", func() bool { return runtime.NumGoroutine()-goroutines <= 3 })
	each := float64(memory()-before) / n
	t.Logf("%.0f bytes per held lock, %d goroutines more", each, runtime.NumGoroutine()-goroutines)
	if each > 1200 {
		t.Errorf("%.0f bytes per held lock", each)
	}
	runtime.KeepAlive(holds)
	if holds[0].Err() != nil || holds[n-1].Err() != nil {
		t.Error("lost")
	}
	testlock.Must(t, s.Shutdown(testlock.Bounded(t))) // slow machines need longer than Close allows
	if st, err := rlock.New(testlock.NewSession(t, rdb), names[n/2]).Inspect(bg); err != nil || st.Held {
		t.Errorf("after Close: %+v, %v", st, err)
	}
	_ = first
}

package rlock_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestAnUncontendedLockIsTwoRequests(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		other := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		w.Net.Reset()
		ctx, hold := testlock.Lock(t, m, bg)
		wantSequence(t, w.Net, "Lock", "acquire")
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		wantSequence(t, w.Net, "re-entry", "renew renew")
		if _, _, err := other.TryLock(bg); err == nil {
			t.Fatal("taken twice")
		}
		wantSequence(t, w.Net, "TryLock of a held lock", "acquire")
		testlock.Unlock(t, hold)
		wantSequence(t, w.Net, "Unlock", "release")
	})
}

// Waking a thread for a new goroutine can take longer than a request to a server nearby.
func TestAnUncontendedLockStartsNoGoroutines(t *testing.T) {
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	if metrics.Read(created); created[0].Value.Kind() != metrics.KindUint64 {
		t.Skip("before Go 1.26, nothing tells")
	}
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		testlock.Must(t, testlock.Cycle(ctx, m)) // now the session knows that replies come quickly
		metrics.Read(created)
		before := created[0].Value.Uint64()
		for range 100 {
			_, hold := testlock.Lock(t, m, ctx)
			testlock.Unlock(t, hold)
		}
		metrics.Read(created)
		if n := created[0].Value.Uint64() - before; n > 10 { // the runtime starts some, too
			t.Errorf("%d goroutines for 100 locks", n)
		}
	})
}

func TestWaitersSendNothingButPingsAndOneHeartbeatPerSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const sessions = 4
		_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"), bg)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range sessions {
			m := rlock.New(testlock.NewSession(t, w.Client), "x")
			for range 50 {
				wg.Go(func() {
					if testlock.Cycle(ctx, m) == nil {
						t.Error("two holders")
					}
				})
			}
		}
		time.Sleep(time.Minute)
		w.Net.Reset()
		const heartbeat = 6 * time.Second      // three fifths of the waiter timeout
		time.Sleep(10*heartbeat + heartbeat/2) // so that no heartbeat is in flight
		heartbeats := strings.Count(sequence(w.Net), "acquire")
		pings := w.Net.Count("PING") // about one every 3 s
		if heartbeats < 10*sessions || heartbeats > 11*sessions || pings > 22*sessions ||
			pings < 18*sessions || pings+heartbeats != w.Net.Count() {
			t.Errorf("%d pings and %d heartbeats of %d sessions in %d requests",
				pings, heartbeats, sessions, w.Net.Count())
		}
		cancel()
		wg.Wait()
		testlock.Unlock(t, hold)
	})
}

func TestAWakeUpCostsNoRequestWhateverTheNumberOfWaiters(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"), bg)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		got := make(chan *rlock.Hold, 40)
		for range 2 {
			m := rlock.New(testlock.NewSession(t, w.Client), "x")
			for range 20 {
				wg.Go(func() {
					if _, h, err := m.Lock(ctx); err == nil {
						got <- h
					}
				})
			}
		}
		settle()
		w.Net.Reset()
		testlock.Unlock(t, hold)
		h := <-got
		synctest.Wait() // the first lease is renewed after 100 ms, so not yet
		wantSequence(t, w.Net, "a wake-up of one of 2 sessions", "")
		cancel()
		testlock.Unlock(t, h)
		wg.Wait()
		for len(got) > 0 { // a waiter was woken just before the cancel
			testlock.Unlock(t, <-got)
		}
	})
}

// terse is a server that allocates almost nothing. It grants every acquire request, and accepts every
// release.
func terse(server net.Conn, lock string) {
	in, out := bufio.NewReader(server), make([]byte, 0, 100)
	word := func() []byte {
		_, _ = in.ReadSlice('\n') // the length of the word
		w, _ := in.ReadSlice('\n')
		return bytes.TrimSpace(w)
	}
	for token := time.Now().UnixMicro(); ; token++ {
		header, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		out = append(out[:0], "-ERR unknown command\r\n"...)
		n := 0
		for _, digit := range bytes.TrimSpace(header[1:]) {
			n = 10*n + int(digit-'0')
		}
		for i := range n {
			switch w := word(); {
			case i == 0 && string(w) == "evalsha":
				out = append(out[:0], "+R\r\n"...)
			case i == 1 && string(w) == lock:
				out = strconv.AppendInt(append(out[:0], "+G "...), token, 10)
				out = append(strconv.AppendInt(append(out, ' '), token, 10), "\r\n"...)
			}
		}
		if _, err := server.Write(out); err != nil {
			return
		}
	}
}

// terseClient returns a client of a terse server, a session, and the digest of the acquire script. The client
// and the session are closed when the test ends.
func terseClient(t *testing.T, options ...rlock.SessionOption) (*redis.Client, *rlock.Session, string) {
	digest := redis.NewScript(script.Text("lock/acquire")).Hash()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:2", PoolSize: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go terse(server, digest)
			return client, nil
		}})
	t.Cleanup(func() { _ = rdb.Close() })
	s := testlock.NewSession(t, rdb, options...)
	return rdb, s, digest
}

// bytesPerHold returns how much memory each hold takes if one session holds n locks. It fails the test if
// holds need goroutines.
func bytesPerHold(t *testing.T, s *rlock.Session, n int) float64 {
	names := make([]string, n)
	for i := range names {
		names[i] = "orders:" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	_, first := testlock.Lock(t, rlock.New(s, "first"), bg) // makes connections and tables
	memory := func() float64 {
		var m runtime.MemStats
		// Earlier tests may have left memory that only later collections free.
		for same, last := 0, uint64(0); same < 3; last = m.HeapAlloc {
			runtime.GC()
			runtime.ReadMemStats(&m)
			if same++; m.HeapAlloc+4096 < last {
				same = 0
			}
		}
		return float64(m.HeapAlloc + m.StackInuse)
	}
	holds := make([]*rlock.Hold, n)
	goroutines, before := runtime.NumGoroutine(), memory()
	for i := range holds {
		_, h, err := rlock.New(s, names[i]).Lock(bg)
		testlock.Must(t, err)
		holds[i] = h
	}
	testlock.Eventually(t, "at most three goroutines at rest", func() bool {
		return runtime.NumGoroutine()-goroutines <= 3
	})
	each := (memory() - before) / float64(n)
	t.Logf("%.0f bytes per held lock", each)
	if holds[0].Err() != nil || holds[n-1].Err() != nil {
		t.Error("lost")
	}
	t.Cleanup(func() { runtime.KeepAlive(holds); runtime.KeepAlive(first) })
	return each
}

func TestAHeldLockCostsLessThanTwoKilobytes(t *testing.T) {
	if raceEnabled {
		t.Skip("memory is not measured under the race detector")
	}
	testlock.InFakeTime(t, func(t *testing.T) {
		_, s, _ := terseClient(t)
		if each := bytesPerHold(t, s, 5000); each > 1350 {
			t.Errorf("%.0f bytes per held lock", each)
		}
	})
}

func TestAnUncontendedLockAllocatesAtMostAQuarterMoreThanBareScripts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, too")
	}
	if strings.HasPrefix(runtime.Version(), "go1.25") {
		t.Skip("the bound is of the Go that the gate has: 1.25 allocates a little more")
	}
	testlock.InFakeTime(t, func(t *testing.T) {
		rdb, s, digest := terseClient(t)
		m := rlock.New(s, "x")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		ours := testing.AllocsPerRun(500, func() {
			_, hold, err := m.Lock(ctx)
			testlock.Must(t, err)
			testlock.Must(t, hold.Unlock(ctx))
		})
		// The least possible cost of Lock and Unlock is that of two EVALSHA through go-redis, with the same
		// arguments and replies.
		keys := []string{"lockline:r:{x}", "lockline:r:{x}:q"}
		owner, about := "285475da-9152-4c83-822a-67ee2f116a79:52", "4711@host label"
		now := time.Now().UnixMicro()
		least := testing.AllocsPerRun(500, func() {
			testlock.Must(t, rdb.EvalSha(ctx, digest, keys, owner, 30000, now, about, 60000).Err())
			testlock.Must(t, rdb.EvalSha(ctx, "release", keys, owner, "1795210080033706", "lockline:r:{x}",
				60000, 0).Err())
		})
		t.Logf("%v allocations, bare %v: %.2f times", ours, least, ours/least)
		if ours > 1.25*least {
			t.Error("more than 1.25 times as many")
		}
		for name, cycle := range idioms(t, func() *rlock.Mutex { return rlock.New(s, "x") }) {
			n := testing.AllocsPerRun(100, cycle)
			// On a busy machine, replies may be so slow that requests get goroutines. So the minimum counts.
			for range 10 {
				n = min(n, testing.AllocsPerRun(100, cycle))
			}
			t.Logf("%s: %v allocations", name, n)
			most := least + 18 // New makes ten of them
			if name == "WaitAtMost" || name == "a deadline each call" {
				most = least + 27 // these calls have a timer
			}
			if n > most {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}

// idioms returns the ways in which users write a Lock and an Unlock. Each calls locker first.
func idioms(t testing.TB, locker func() *rlock.Mutex) map[string]func() {
	outer, cancel := context.WithCancel(bg)
	t.Cleanup(cancel)
	cycle := func(
		take func(rlock.Locker) (context.Context, *rlock.Hold, error),
		unlock func(held context.Context) context.Context,
	) func() {
		return func() {
			held, hold, err := take(locker())
			testlock.Must(t, err)
			testlock.Must(t, hold.Unlock(unlock(held)))
		}
	}
	lock := func(ctx context.Context) func(rlock.Locker) (context.Context, *rlock.Hold, error) {
		return func(l rlock.Locker) (context.Context, *rlock.Hold, error) { return l.Lock(ctx) }
	}
	with := func(ctx context.Context) func(context.Context) context.Context {
		return func(context.Context) context.Context { return ctx }
	}
	its := func(held context.Context) context.Context { return held }
	return map[string]func(){
		"the outer context":  cycle(lock(outer), with(outer)),
		"Background":         cycle(lock(bg), with(bg)),
		"the hold's context": cycle(lock(outer), its),
		"WaitAtMost": cycle(func(l rlock.Locker) (context.Context, *rlock.Hold, error) {
			return l.Lock(outer, rlock.WaitAtMost(time.Minute))
		}, its),
		"TryLock": cycle(func(l rlock.Locker) (context.Context, *rlock.Hold, error) {
			return l.TryLock(outer)
		}, its),
		"Do": func() { testlock.Must(t, locker().Do(outer, func(context.Context) error { return nil })) },
		"a deadline each call": func() {
			ctx, cancel := context.WithTimeout(outer, time.Minute)
			defer cancel()
			cycle(lock(ctx), its)()
		},
	}
}

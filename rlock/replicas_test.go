package rlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// confirmed is more time than replicas need, refused is for those that stand still.
const (
	confirmed = 2 * time.Second
	refused   = 100 * time.Millisecond
)

// confirmable are the kinds of locks that replicas can confirm.
var confirmable = map[string]testlock.Maker{"reentrant": rlock.New, "fair": fairlock.New}

// replicas are those of an in-memory server: how many of them confirm.
type replicas struct{ atomic.Int64 }

// replicated runs a test in fake time for each confirmable kind, with a server that has one replica.
func replicated(t *testing.T, test func(t *testing.T, w *testlock.Wire, one *replicas, newMutex testlock.Maker)) {
	for kind, newMutex := range confirmable {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				var one replicas
				one.Store(1)
				w.Client = w.Net.Client(t)                // which is more patient than WAIT
				testlock.Must(t, w.Client.Ping(bg).Err()) // so that there is a server
				w.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
					if cmd != "WAIT" {
						return false
					}
					n := int(one.Load())
					if n == 0 { // for each of our sessions wants one
						timeout, _ := time.ParseDuration(args[1] + "ms")
						time.Sleep(timeout)
					}
					c.WriteInt(n)
					return true
				})
				test(t, w, &one, newMutex)
			})
		})
	}
}

func TestReplicasConfirmEachGrantByOneMoreRequest(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *replicas, newMutex testlock.Maker) {
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, w.Client, rlock.WithReplicas(1, confirmed)), "x"))
		w.Net.Reset()
		ctx, hold := testlock.Lock(t, m, bg)
		wantSequence(t, w.Net, "a lock", "lock.lua confirm.lua WAIT")
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested)
		wantSequence(t, w.Net, "a re-entry", "keep.lua keep.lua")
		testlock.Unlock(t, hold)
		wantSequence(t, w.Net, "an unlock", "release.lua")
		_, hold = testlock.TryLock(t, m, bg)
		wantSequence(t, w.Net, "TryLock", "lock.lua confirm.lua WAIT")
		testlock.Unlock(t, hold)
		w.Net.Reset()
		testlock.Must(t, w.Client.ScriptFlush(bg).Err())
		testlock.Works(t, m) // which is confirmed as well
		wantSequence(t, w.Net, "without scripts",
			"SCRIPT lock.lua lock.lua confirm.lua WAIT confirm.lua WAIT release.lua release.lua")
	})
}

func TestAHandOverInMemoryBuildsOnWhatWasConfirmed(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *replicas, newMutex testlock.Maker) {
		want := ""
		if strings.HasSuffix(t.Name(), "fair") {
			want = "release.lua confirm.lua WAIT" // it is handed over by Redis
		}
		s := testlock.NewSession(t, w.Client, rlock.WithReplicas(1, confirmed), rlock.WithStreak(time.Minute))
		m := testlock.Warm(t, newMutex(s, "x"))
		_, hold := testlock.Lock(t, m, bg)
		got := testlock.Go(bg, m)
		settle()
		w.Net.Reset()
		testlock.Unlock(t, hold)
		next := testlock.Granted(t, got)
		wantSequence(t, w.Net, "a hand-over", want)
		testlock.Unlock(t, next)
	})
}

func TestAGrantThatReplicasRefusedIsHandedToNobodyInMemory(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, replica *replicas, newMutex testlock.Maker) {
		var acquired atomic.Int32
		count := testlock.Observer(func(e rlock.Event) {
			if e.Kind == rlock.Acquired {
				acquired.Add(1)
			}
		})
		s := testlock.NewSession(t, w.Client, rlock.WithReplicas(1, refused), rlock.WithStreak(time.Minute), rlock.WithObserver(count))
		m := newMutex(s, "x")
		replica.Store(0)
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
		settle()
		if n := acquired.Load(); n != 0 {
			t.Errorf("%d have held it", n)
		}
		if n := strings.Count(sequence(w.Net), "release.lua"); n < 6 {
			t.Errorf("six owners have given it back %d times", n)
		}
	})
}

func TestAConfirmationWhoseReplyIsLostIsAskedForAgain(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *replicas, newMutex testlock.Maker) {
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, w.Client, rlock.WithReplicas(1, confirmed)), "x"))
		for _, lost := range []string{"confirm.lua", "WAIT"} {
			w.Net.Reset()
			w.Net.OnRequest(onFirst(faultproxy.CutReply, func(r *faultproxy.Request) bool { return r.Is(lost) || isScript(r, lost) }))
			_, hold := testlock.Lock(t, m, bg)
			if n := strings.Count(sequence(w.Net), "confirm.lua"); n != 2 {
				t.Errorf("without the reply to %s: %d confirmations: %s", lost, n, sequence(w.Net))
			}
			copies := w.Net.Requests()
			testlock.Unlock(t, hold)
			next := newMutex(testlock.NewSession(t, beside(t, w)), "x")
			_, hold = testlock.Lock(t, next, bg, rlock.WithLease(10*time.Second))
			for _, r := range copies {
				if isScript(&r, "confirm.lua") { // and a late copy changes nothing
					if reply, err := w.Net.Replay(r); err != nil || !strings.Contains(reply, "L") {
						t.Errorf("a late copy: %q, %v", reply, err)
					}
				}
			}
			if left := testlock.Inspect(t, next).Remaining; left > 10*time.Second {
				t.Errorf("a late copy has lengthened another one's lease to %v", left)
			}
			testlock.Unlock(t, hold)
		}
	})
}

func TestACanceledConfirmationGivesBack(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, replica *replicas, newMutex testlock.Maker) {
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, w.Client, rlock.WithReplicas(1, confirmed)), "x"))
		replica.Store(0)
		ctx, cancel := context.WithCancel(bg)
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Is("WAIT") {
				cancel()
			}
			return faultproxy.Pass
		})
		if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		testlock.Must(t, testlock.Cycle(bg, newMutex(testlock.NewSession(t, beside(t, w)), "x"), rlock.WaitAtMost(confirmed+time.Second)))
	})
}

func TestAGrantThatIsGoneBeforeItIsConfirmedIsNotBelieved(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *replicas, newMutex testlock.Maker) {
		m := testlock.Warm(t, newMutex(testlock.NewSession(t, w.Client, rlock.WithReplicas(1, confirmed)), "x"))
		operator := newMutex(testlock.NewSession(t, beside(t, w)), "x")
		once := sync.OnceFunc(func() {
			if _, err := operator.ForceUnlock(bg); err != nil {
				t.Error(err)
			}
		})
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "confirm.lua") {
				once()
			}
			return faultproxy.Pass
		})
		w.Net.Reset()
		hold := testlock.Take(t, m)
		if n := w.Net.Count("WAIT"); n != 2 {
			t.Errorf("%d confirmations: %s", n, sequence(w.Net))
		}
		if st := testlock.Inspect(t, operator); !st.Held || st.Token != hold.Token() {
			t.Errorf("holds %d: %+v", hold.Token(), st)
		}
		testlock.Unlock(t, hold)
	})
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

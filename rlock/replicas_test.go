package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// replicated runs a test in fake time with a hold on a server that has one replica. While connected is 0, the
// replica acknowledges nothing. A WAIT for more replicas blocks until its timeout.
func replicated(
	t *testing.T, test func(t *testing.T, w *testlock.Wire, connected *atomic.Int64, hold *rlock.Hold),
) {
	for kind, newLocker := range queued {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				var connected atomic.Int64
				connected.Store(1)
				w.Client = w.Net.Client(t)
				testlock.Must(t, w.Client.Ping(bg).Err()) // starts the server
				w.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
					if cmd != "WAIT" {
						return false
					}
					n := int(connected.Load())
					if want, _ := strconv.Atoi(args[0]); n < want {
						timeout, _ := time.ParseDuration(args[1] + "ms")
						time.Sleep(timeout)
					}
					c.WriteInt(n)
					return true
				})
				_, hold, err := newLocker(testlock.NewSession(t, w.Client)).Lock(bg)
				testlock.Must(t, err)
				testlock.Keep(t, hold)
				w.Net.Reset()
				test(t, w, &connected, hold)
			})
		})
	}
}

func TestReplicasThatHaveTheLockAreFoundByAWriteAndAWait(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		testlock.Must(t, hold.WaitReplicas(bg, 1)) // now the server has the script that extends
		w.Net.Reset()
		left := hold.Deadline()
		testlock.Must(t, hold.WaitReplicas(bg, 1))
		if got := w.Net.Requests(); len(got) != 3 || !got[0].Is("EVAL") || !got[1].Is("WAIT") {
			t.Errorf("it has sent %s", sequence(w.Net))
		}
		if hold.Deadline().Before(left) {
			t.Error("the lease is shorter")
		}
		testlock.Unlock(t, hold)
	})
}

func TestReplicasThatAreMissingAreWaitedForUntilTheContextEnds(t *testing.T) {
	replicated(t, func(t *testing.T, _ *testlock.Wire, connected *atomic.Int64, hold *rlock.Hold) {
		connected.Store(0)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		begun := time.Now()
		err := hold.WaitReplicas(ctx, 1)
		took := time.Since(begun)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "0 of 1 replicas") ||
			took > 1100*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		testlock.OnePrefix(t, "WaitReplicas", err)
		testlock.Must(t, hold.Err())
		back := time.AfterFunc(10*time.Second, func() { connected.Store(1) })
		defer back.Stop()
		begun = time.Now()
		testlock.Must(t, hold.WaitReplicas(bg, 1))
		if took := time.Since(begun); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it has waited %v for a replica that was back after 10 s", took)
		}
		testlock.Unlock(t, hold)
	})
}

// The error has the number of replicas from the last reply, even if a deadline or a broken connection has
// ended later requests.
func TestAWaitThatIsCutOffDoesNotHideHowManyReplicasHadTheLock(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		for _, lost := range []string{"WAIT", "EVALSHA"} {
			var asked atomic.Int64
			w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if r.Is(lost) && asked.Add(1) > 1 {
					return faultproxy.DropAndCut
				}
				return faultproxy.Pass
			})
			ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
			err := hold.WaitReplicas(ctx, 2)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || asked.Load() < 2 ||
				!strings.Contains(err.Error(), "1 of 2 replicas") {
				t.Errorf("after %d of %s: %v", asked.Load(), lost, err)
			}
			testlock.OnePrefix(t, "WaitReplicas", err)
		}
		w.Net.OnRequest(nil)
		testlock.Unlock(t, hold)
	})
}

func TestAWaitForReplicasRidesOutAnOutage(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		for _, lost := range []string{"EVAL", "WAIT", "EVALSHA"} {
			w.Net.OnRequest(onFirst(faultproxy.CutReply, func(r *faultproxy.Request) bool {
				return r.Is(lost)
			}))
			testlock.Must(t, hold.WaitReplicas(bg, 1))
		}
		testlock.Unlock(t, hold)
	})
}

// After a failover to a replica without the lock, WAIT succeeds, but the lock is gone.
// Proves: WaitReplicas
func TestALockThatIsGoneIsNotOnReplicas(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		w.FlushAll()
		testlock.WantError(t, "WaitReplicas", hold.WaitReplicas(bg, 1), rlock.ErrLost)
		testlock.WantError(t, "Err", hold.Err(), rlock.ErrLost)
		testlock.WantError(t, "WaitReplicas again", hold.WaitReplicas(bg, 1), rlock.ErrLost)
	})
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Is("EVALSHA") { // the failover happens between WAIT and this request
				w.FlushAll()
			}
			return faultproxy.Pass
		})
		testlock.WantError(t, "WaitReplicas", hold.WaitReplicas(bg, 1), rlock.ErrLost)
	})
}

func TestWhatWaitReplicasRefuses(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		refused := func(hold *rlock.Hold, n int, want string) {
			t.Helper()
			if err := hold.WaitReplicas(bg, n); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", want, err)
			}
		}
		refused(hold, 0, "at least 1, not 0")
		var none context.Context
		if err := hold.WaitReplicas(none, 1); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("lock %q: the context is nil", hold.Name())) {
			t.Errorf("without a context: %v", err)
		}
		refused(nil, 1, "not held")
		refused(testlock.Take(t, rlock.New(testlock.NewSession(t, struct{ rlock.Client }{w.Client}),
			"other")), 1, "may have several servers")
		testlock.Unlock(t, hold)
		refused(hold, 1, "not held")
	})
}

// Proves: WaitReplicas
func TestAWaitForReplicasEndsWithItsContextOrHoldThoughItsRequestIsStuck(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		w.Down(true)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		begun := time.Now()
		err := hold.WaitReplicas(ctx, 1)
		took := time.Since(begun)
		if !errors.Is(err, context.DeadlineExceeded) || took > 1100*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		deadline := hold.Deadline()
		err = hold.WaitReplicas(bg, 1)
		if late := time.Since(deadline); !errors.Is(err, rlock.ErrLost) || late > 100*time.Millisecond {
			t.Errorf("%v after the hold: %v", late, err)
		}
		w.Down(false)
	})
}

func TestAWaitForReplicasRidesOutALongOutage(t *testing.T) {
	replicated(t, func(t *testing.T, w *testlock.Wire, _ *atomic.Int64, hold *rlock.Hold) {
		begun := time.Now()
		w.Down(true)
		back := time.AfterFunc(8*time.Second, func() { w.Down(false) })
		defer back.Stop()
		testlock.Must(t, hold.WaitReplicas(bg, 1))
		if took := time.Since(begun); took < 8*time.Second || took > 12*time.Second {
			t.Errorf("it took %v", took)
		}
		testlock.Unlock(t, hold)
	})
}

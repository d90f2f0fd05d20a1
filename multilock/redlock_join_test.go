package multilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// renewal is the time between two renewals of a hold in these tests.
const renewal = protocol.DefaultLease / 3

// Servers without persistence are restarted one after another. Each restart comes after the hold has joined
// the server of the last restart again. Proves: RedLock
func TestAHoldOutlivesARollingRestartOfAllServers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		ctx, hold := testlock.Lock(t, m, bg)
		for round := range 2 {
			for i, w := range r {
				w.Restart()
				time.Sleep(time.Minute)
				if err := hold.Err(); err != nil || !r.unanimous() {
					t.Fatalf("round %d, server %d: %v, it is held by %q", round, i, err, r.holders())
				}
			}
		}
		_, nested := testlock.Lock(t, m, ctx)
		testlock.Unlock(t, nested, hold)
		testlock.Eventually(t, "free", func() bool { return r.held() == 0 })
		testlock.WantAfter(t, testlock.Take(t, m), hold.Token())
	})
}

// A hold on two of three servers joins the third one when that can grant, and then outlives the loss of
// another server.
func TestAHoldJoinsAServerThatWasNotThereWhenItWasGranted(t *testing.T) {
	for name, c := range map[string]struct{ gone, back func(*testlock.Wire) }{
		"down":   {(*testlock.Wire).Kill, (*testlock.Wire).Restart},
		"frozen": {func(w *testlock.Wire) { w.Net.Freeze() }, func(w *testlock.Wire) { w.Net.Thaw() }},
		"taken":  {foreign, func(w *testlock.Wire) { w.Del(redKey) }},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				c.gone(r[0])
				m := r.redLock(t)
				ctx, hold := testlock.Lock(t, m, bg, rlock.WithNote("order 42"))
				c.back(r[0])
				time.Sleep(time.Minute)
				if !r.unanimous() {
					t.Fatalf("it is held by %q", r.holders())
				}
				if info := r[0].HGet(redKey, "info"); !strings.HasSuffix(info, "\torder 42") {
					t.Errorf("the server that came later has the holder info %q", info)
				}
				r[1].FlushAll()
				testlock.Must(t, hold.Extend(bg, time.Minute))
				_, nested := testlock.Lock(t, m, ctx)
				testlock.Unlock(t, nested, hold)
				if time.Sleep(time.Minute); r.held() > 0 {
					t.Errorf("held by %d in the end", r.held())
				}
			})
		})
	}
}

// A part that another holder has on its server waits in the queue there. If it only sent a TryLock at times,
// other waiters on that server could always come first. Proves: RedLock
func TestAPartThatAnotherHolderHasWaitsInTheQueueOfItsServer(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		foreign(r[0])
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		testlock.Eventually(t, "in the queue", func() bool {
			waiting, err := r[0].ZMembers(redKey + ":q")
			return err == nil && len(waiting) == 1
		})
		testlock.ForceUnlock(t, testlock.RedLock("x", r[:1].process(t)...))
		if synctest.Wait(); !r.unanimous() {
			t.Errorf("the freed server is not handed over to the part that waits there: %q", r.holders())
		}
		testlock.Unlock(t, hold)
	})
}

// foreign makes a server grant x to another holder for 5 minutes.
func foreign(w *testlock.Wire) {
	occupied(w, "otherA:1", 5*time.Minute)
}

// Two of three servers forget the hold, so another process can get the lock. The hold must be lost, and must
// not join any server again. This holds whichever loss is found first. Proves: RedLock
func TestAHoldThatAMajorityForgotJoinsNobody(t *testing.T) {
	for slow := range 3 {
		withServers(t, 3, func(t *testing.T, r servers) {
			m := r.warm(t)
			ctx, hold := testlock.Lock(t, m, bg)
			synctest.Wait()
			r[slow].Net.SetDelay(10 * time.Millisecond)
			r[0].Restart()
			r[1].FlushAll()
			_, other, err := r.redLock(t).TryLock(bg)
			testlock.Must(t, err)
			testlock.Unlock(t, other)
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took > renewal+2*time.Second {
				t.Errorf("it was lost after %v, not with the next renewal", took)
			}
			if time.Sleep(5 * time.Second); r.held() > 0 {
				t.Errorf("it is held by %q", r.holders())
			}
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			testlock.WantAfter(t, testlock.Take(t, m), hold.Token())
		})
	}
}

// A hold does not join a server again on which an operator has freed the lock. Otherwise nobody could free a
// lock one server at a time. Proves: RedLock
func TestAForcedServerIsNotJoined(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		_, hold := testlock.Lock(t, m, bg)
		synctest.Wait()
		one := testlock.RedLock("x", r[:1].process(t)...)
		testlock.ForceUnlock(t, one)
		time.Sleep(3 * renewal)
		if n := r.held(); n != 2 || hold.Err() != nil {
			t.Errorf("%d servers have it, %v", n, hold.Err())
		}
		testlock.ForceUnlock(t, testlock.RedLock("x", r[1:2].process(t)...))
		time.Sleep(3 * renewal)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Works(t, m)
	})
}

// The hold cannot find out at first why it has lost a part. It must not acquire the part before it knows that
// no operator has freed it.
func TestAServerIsNotJoinedBeforeItSaysWhetherItWasForced(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		var cut atomic.Int64
		r[0].Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			if testlock.Script(q.Script()) == "inspect" && cut.Add(1) <= 20 {
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		direct := testlock.NewSession(t, faultproxy.InMemory(t, r[0].Dial).Client(t))
		testlock.ForceUnlock(t, testlock.RedLock("x", direct))
		time.Sleep(3 * renewal)
		if n := r.held(); n != 2 || hold.Err() != nil || cut.Load() <= 20 {
			t.Errorf("%d servers have it after %d requests to inspect: %v", n, cut.Load(), hold.Err())
		}
		r[0].Net.OnRequest(nil)
		testlock.Unlock(t, hold)
	})
}

// The request for the part was sent twice, so the release of the part leaves a tombstone, as a forced unlock
// does. The hold must not mistake its own tombstone for the tombstone of a forced unlock.
func TestAHoldJoinsAServerWhoseRequestWasSentTwice(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		var cut, cutLater atomic.Bool
		r[0].Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			switch script := testlock.Script(q.Script()); {
			case script == "acquire" && cut.CompareAndSwap(false, true),
				script == "inspect" && cutLater.CompareAndSwap(false, true): // so a release could come first
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		_, hold := testlock.Lock(t, m, bg)
		time.Sleep(time.Second)
		if !r.unanimous() || !cut.Load() {
			t.Fatalf("it is held by %q", r.holders())
		}
		r[0].FlushAll()
		testlock.Must(t, hold.Extend(bg, protocol.DefaultLease)) // finds the loss
		testlock.Eventually(t, "all have it again", r.unanimous)
		if !cutLater.Load() {
			t.Error("no request to inspect")
		}
		testlock.Unlock(t, hold)
	})
}

// The server never says whether an operator has freed the part. The part is released when the hold ends.
func TestALostPartWhoseServerDoesNotSayWhetherItWasForcedIsReleased(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			if testlock.Script(q.Script()) == "inspect" {
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		r[0].FlushAll()
		time.Sleep(2 * renewal)
		r.reset()
		testlock.Unlock(t, hold)
		if n := r.count("release"); n != 3 {
			t.Errorf("%d releases, want one for each server", n)
		}
		r[0].Net.OnRequest(nil)
	})
}

// The request of the part that joins again arrives after the Unlock. It must take nothing.
func TestARequestToJoinThatComesAfterUnlockTakesNothing(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].Net.OnRequest(holds("acquire"))
		r[0].FlushAll()
		testlock.Eventually(t, "it asks to join", func() bool { return len(r[0].Net.Held()) > 0 })
		testlock.Unlock(t, hold)
		time.Sleep(20 * time.Second)
		for _, q := range r[0].Net.Held() {
			testlock.Must(t, r[0].Net.Release(q))
		}
		r[0].Net.OnRequest(nil)
		if n := r.held(); n != 0 {
			t.Errorf("%d servers have it after Unlock", n)
		}
	})
}

// The hold is unlocked while its new part waits for the confirmation by a majority. The part must be
// released, too.
func TestAHoldThatIsUnlockedWhileItJoinsLeavesNothing(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].FlushAll()
		testlock.Eventually(t, "it is not there", func() bool { return r.held() == 2 })
		for _, w := range r[1:] {
			w.Net.OnRequest(holds("renew"))
		}
		testlock.Eventually(t, "it was granted", func() bool { return r.held() == 3 })
		testlock.Unlock(t, hold)
		if time.Sleep(20 * time.Second); r.held() > 0 {
			t.Errorf("it is held by %q", r.holders())
		}
	})
}

// Two parts are granted after Lock has returned. The first one can neither join nor be released soon, because
// its server dies.
func TestALatePartIsReleasedThoughTheServerOfAnotherOneDies(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		m := r.warm(t)
		time.Sleep(100 * time.Millisecond) // until the releases of warm have ended on all servers
		for i, delay := range []time.Duration{10, 30, 32, 10, 10} {
			r[i].Net.SetDelay(delay * time.Millisecond / 10)
		}
		_, hold := testlock.Lock(t, m, bg) // after 4 ms; the late answers arrive after 6 and 6.4 ms
		time.Sleep(3 * time.Millisecond)   // the first late part waits until the others confirm the hold
		time.AfterFunc(500*time.Microsecond, r[1].Kill)
		testlock.Unlock(t, hold)
		time.Sleep(20 * time.Millisecond)
		if all := r.holders(); all[2] != "" {
			t.Errorf("held by %q", all)
		}
	})
}

// After an Extend by an hour, the parts are not renewed for a long time, so the loss of a majority could go
// unnoticed. A part that joins again must make the other servers confirm the hold.
func TestAnExtendedHoldJoinsNobodyBeforeAMajorityIsRenewed(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		var failed atomic.Int64
		m := r.warm(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventRenewFailed {
				failed.Add(1)
			}
		})))
		ctx, hold := testlock.Lock(t, m, bg)
		testlock.Must(t, hold.Extend(bg, time.Hour))
		if time.Sleep(3 * renewal); failed.Load() > 0 {
			t.Errorf("%d renewals failed", failed.Load())
		}
		for _, w := range r[1:] {
			w.Net.Freeze()
		}
		r[0].FlushAll()
		time.Sleep(3 * renewal)
		r[1].FlushAll() // two of three have forgotten it
		for _, w := range r[1:] {
			w.Net.Thaw()
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * renewal):
			t.Errorf("it is held by %q", r.holders())
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAnExtendedHoldGetsBackAServerThatForgotIt(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		testlock.Must(t, hold.Extend(bg, time.Hour))
		r[0].FlushAll()
		testlock.Eventually(t, "all have it", r.unanimous)
		if left := time.Until(hold.Deadline()); left < 50*time.Minute {
			t.Errorf("%v are left", left)
		}
		testlock.Unlock(t, hold)
	})
}

// A request to a slow server is not ended when the other servers have answered. This includes the second copy
// of a renewal, which has the text of the script. Proves: RedLock
func TestAFartherServerThatHasLostItsScriptsKeepsTheHold(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].Net.SetDelay(5 * time.Millisecond)
		testlock.Must(t, r[0].Client.ScriptFlush(bg).Err())
		for i := range 100 {
			time.Sleep(time.Second)
			if left := leaseOf(r[0], redKey); left < 2*renewal-time.Second {
				t.Fatalf("after %d s %v of the lease is left there", i+1, left)
			}
		}
		testlock.Unlock(t, hold)
	})
}

// The servers are restarted half a lease apart, as docs/operations.md says. Each session has ten idle
// connections, which break. Another process waits for the lock. Further processes call TryLock again and
// again, and so take a server without data for a moment. Proves: RedLock
func TestAHoldOutlivesARollingRestartAtThePaceOfTheRunbook(t *testing.T) {
	for _, c := range []struct {
		lease time.Duration
		tries int
	}{{3 * time.Second, 0}, {3 * time.Second, 3}, {3 * renewal, 0}, {3 * renewal, 3}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				of := rlock.WithWatchdogTimeout(c.lease)
				idle := func(o *redis.Options) { o.MinIdleConns, o.ConnMaxIdleTime = 10, time.Hour }
				m := testlock.Warm(t, testlock.RedLock("x", r.clients(t, idle, of)...))
				synctest.Wait()
				ctx, hold := testlock.Lock(t, m, bg)
				waiting := testlock.Go(bg, r.redLock(t, of))
				trying, stop := context.WithCancel(bg)
				var wg sync.WaitGroup
				for range c.tries {
					m := r.redLock(t, of)
					wg.Go(func() {
						for trying.Err() == nil {
							if _, got, err := m.TryLock(trying); err == nil {
								t.Error("two hold it")
								_ = got.Unlock(bg)
							}
							time.Sleep(rand.N(c.lease / 50))
						}
					})
				}
				for range 2 {
					for i, w := range r {
						w.Restart()
						time.Sleep(c.lease / 2)
						if ctx.Err() != nil {
							t.Errorf("lost after server %d: %v", i, context.Cause(ctx))
						}
					}
				}
				stop()
				wg.Wait()
				testlock.Unlock(t, hold)
				next := testlock.Granted(t, waiting)
				testlock.WantAfter(t, next, hold.Token())
				testlock.Unlock(t, next)
			})
		})
	}
}

func TestAHoldThatStaysOnABareMajorityIsLogged(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithLogger(log.Logger())), bg)
		time.Sleep(2 * renewal)
		if n := log.Count("bare majority"); n != 0 {
			t.Errorf("logged %d times while all have it", n)
		}
		watch := r.redLock(t)
		if st := testlock.Inspect(t, watch); st.Servers != 3 {
			t.Errorf("%+v", st)
		}
		r[0].Kill()
		if st := testlock.Inspect(t, watch); st.Servers != 2 || !st.Held {
			t.Errorf("%+v", st)
		}
		time.Sleep(3 * time.Minute)
		if n := log.Count("held by a bare majority"); n < 1 || n > 4 || log.Count(r[0].Net.Addr()) < n {
			t.Errorf("logged %d times: %s", n, log)
		}
		testlock.Unlock(t, hold)
	})
}

// A server that refuses renewals counts as missing, too.
func TestAServerThatRefusesRenewalsIsLogged(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithLogger(log.Logger())), bg)
		r[0].SetError("NOPERM no rights")
		time.Sleep(3 * time.Minute)
		if log.Count("held by a bare majority") == 0 || log.Count("NOPERM") == 0 {
			t.Error(log)
		}
		testlock.Unlock(t, hold)
	})
}

func TestAnExtendCountsNoServerThatIsLostMeanwhile(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		_, hold := testlock.Lock(t, m, bg)
		r[1].Net.SetDelay(20 * time.Millisecond)
		r[2].Net.Freeze()
		extended := make(chan error, 1)
		go func() { extended <- hold.Extend(bg, 5*time.Minute) }()
		time.Sleep(5 * time.Millisecond) // the first server has answered
		testlock.ForceUnlock(t, testlock.RedLock("x", r[:1].process(t)...))
		ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
		defer cancel()
		_ = hold.Extend(ctx, time.Second) // finds that the first server has lost its part
		time.Sleep(10 * time.Second)
		select {
		case err := <-extended:
			if left := time.Until(hold.Deadline()); err == nil && left < 4*time.Minute {
				t.Errorf("it is extended, for %v", left)
			}
		default:
			// Extend still waits for the last server.
		}
		r[2].Net.Thaw()
		_ = hold.Unlock(bg)
		synctest.Wait()
	})
}

// A hold with a fixed lease that is not unlocked keeps others out until its lease has ended in Redis.
func TestAFixedLeaseOfARedLockIsNotGivenBackBeforeItsEnd(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		_, hold, err := m.TryLock(bg, rlock.WithLease(100*time.Second))
		testlock.Must(t, err)
		time.Sleep(99500 * time.Millisecond)
		other := r.redLock(t)
		if _, _, err := other.TryLock(bg); err == nil {
			t.Error("another holder, 0.5 s before the end of the lease that was never unlocked")
		}
		if n := r.held(); n < 2 {
			t.Errorf("held by %d", n)
		}
		_ = hold.Unlock(bg)
	})
}

package multilock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// renewal is the time between two renewals of a hold in these tests.
const renewal = 10 * time.Second

// Servers that keep nothing are restarted one after another, each after the one before has the hold again.
func TestAHoldOutlivesARollingRestartOfAllServers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		_, hold := testlock.Lock(t, m, bg)
		for round := range 2 {
			for i, w := range r {
				w.Restart()
				time.Sleep(time.Minute)
				if err := hold.Err(); err != nil || !r.unanimous() {
					t.Fatalf("round %d, server %d: %v, the grants are %q", round, i, err, r.grants())
				}
			}
		}
		testlock.Unlock(t, hold)
		testlock.Eventually(t, "free", func() bool { return r.held() == 0 })
		testlock.WantAfter(t, testlock.Take(t, m), hold.Token())
	})
}

// A hold of a bare majority gets the last server, too, once that is there, and then outlives one of the others.
func TestAHoldJoinsAServerThatWasDownWhenItWasGranted(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		r[0].Kill()
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		r[0].Restart()
		time.Sleep(time.Minute)
		if !r.unanimous() {
			t.Fatalf("the grants are %q", r.grants())
		}
		r[1].FlushAll()
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Unlock(t, hold)
	})
}

// Two of three forget it: others may have held it meanwhile, so it is lost, and takes no server again.
func TestAHoldThatAMajorityForgotJoinsNobody(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		ctx, hold := testlock.Lock(t, m, bg)
		synctest.Wait()
		r[0].Restart()
		r[1].FlushAll()
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took > renewal+2*time.Second {
			t.Errorf("it was lost after %v, not with the next renewal", took)
		}
		if n := r.held(); n > 1 {
			t.Errorf("%d servers have it", n)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.WantAfter(t, testlock.Take(t, m), hold.Token())
	})
}

// A lock that an operator forced is not taken back, on no server, though a majority still has it as the renewal asks.
func TestAForcedServerIsNotJoined(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		synctest.Wait()
		testlock.Must(t, redScript("force").Run(bg, r[0].Client, []string{redKey, redMemory}, redKey, 60000).Err())
		time.Sleep(3 * renewal)
		if n := r.held(); n != 2 {
			t.Errorf("%d servers have it", n)
		}
		testlock.Unlock(t, hold)
	})
}

// The request to join is late: it comes when the hold is over, and must find that.
func TestARequestToJoinThatComesAfterUnlockTakesNothing(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].Net.OnRequest(holds("lock"))
		r[0].FlushAll()
		testlock.Eventually(t, "it asks to join", func() bool { return len(r[0].Net.Held()) > 0 })
		testlock.Unlock(t, hold)
		testlock.Eventually(t, "the release came first", func() bool { return r.held() == 0 && r[0].Exists(redMemory) })
		for _, q := range r[0].Net.Held() {
			testlock.Must(t, r[0].Net.Release(q))
		}
		r[0].Net.OnRequest(nil)
		if n := r.held(); n != 0 {
			t.Errorf("%d servers have it after Unlock", n)
		}
	})
}

// holds holds the requests for a script of x.
func holds(script string) func(*faultproxy.Request) faultproxy.Action {
	return func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == redDigests[script] {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	}
}

// A hold that was extended is valid for long, whatever servers say of it now. It is joined only where a majority says
// that it has it. Its renewals move no deadline, and have not failed for that.
func TestAnExtendedHoldJoinsNobodyBeforeAMajorityIsRenewed(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		failed := 0
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Kind == rlock.RenewFailed {
				failed++
			}
		}))), bg)
		testlock.Must(t, hold.Extend(bg, time.Hour))
		r.reset()
		time.Sleep(5 * renewal)
		if asked := r.count("keep"); asked < 10 || failed > 0 {
			t.Errorf("%d requests to renew, %d renewals failed", asked, failed)
		}
		for _, w := range r[1:] {
			w.Net.OnRequest(holds("keep"))
		}
		r[0].FlushAll()
		time.Sleep(5 * renewal)
		if n := r.held(); n != 2 {
			t.Errorf("%d servers have it, where one forgot it and two have not answered", n)
		}
		for _, w := range r {
			w.Net.OnRequest(nil)
			for _, q := range w.Net.Held() {
				testlock.Must(t, w.Net.Release(q))
			}
		}
		testlock.Eventually(t, "all have it", r.unanimous)
		testlock.Unlock(t, hold)
	})
}

// What a server is asked for goes on though the others have answered: the copy of a renewal with the whole
// script, too.
func TestAFartherServerThatHasLostItsScriptsKeepsTheHold(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.warm(t), bg)
		synctest.Wait()
		r[0].Net.SetDelay(5 * time.Millisecond)
		testlock.Must(t, r[0].Client.ScriptFlush(bg).Err())
		for i := range 100 {
			time.Sleep(time.Second)
			if left := r[0].TTL(redKey); left < 2*renewal-time.Second {
				t.Fatalf("after %d s %v of the lease is left there", i+1, left)
			}
		}
		testlock.Unlock(t, hold)
	})
}

// Half of a lease after each server, as docs/operations.md says, with ten idle connections that break, with a
// waiter beside the holder, and with sessions that only try and so take the empty server for a moment, again
// and again.
func TestAHoldOutlivesARollingRestartAtThePaceOfTheRunbook(t *testing.T) {
	for _, c := range []struct {
		lease time.Duration
		tries int
	}{{3 * time.Second, 0}, {3 * time.Second, 3}, {3 * renewal, 0}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				of := rlock.WithWatchdogTimeout(c.lease)
				idle := func(o *redis.Options) { o.MinIdleConns, o.ConnMaxIdleTime = 10, time.Hour }
				m := testlock.Warm(t, multilock.NewRedLock("x", r.clients(t, idle, of)...))
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
							time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
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
		log := new(logged)
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil)))), bg)
		time.Sleep(2 * renewal)
		if n := log.count("bare majority"); n != 0 {
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
		if n := log.count("held by a bare majority"); n < 1 || n > 4 || log.count(r[0].Net.Addr()) < n {
			t.Errorf("logged %d times: %s", n, log.b.String())
		}
		testlock.Unlock(t, hold)
	})
}

// A server that refuses renewals is asked again only with the next one, and is no less missing for that.
func TestAServerThatRefusesRenewalsIsLogged(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(logged)
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil)))), bg)
		r[0].SetError("NOPERM no rights")
		time.Sleep(3 * time.Minute)
		if log.count("held by a bare majority") == 0 || log.count("NOPERM") == 0 {
			t.Error(log.b.String())
		}
		testlock.Unlock(t, hold)
	})
}

package multilock_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestAQuorumThatHasEndedIsForgottenByTheSessionsThatLiveOn(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		all := r.process(t)
		ended := func(last *rlock.Session) func() bool {
			q, err := multilock.NewQuorum([]*rlock.Session{all[0], last, all[1]})
			testlock.Must(t, err)
			testlock.Must(t, testlock.Cycle(bg, q.New("x"))) // not testlock.Works, which keeps its Hold
			testlock.Must(t, last.Close())
			if _, err := multilock.NewQuorum([]*rlock.Session{all[0], last, all[1]}); err == nil {
				t.Error("a quorum of a session that is closed")
			}
			return multilock.Reachable(q)
		}
		last := testlock.NewSession(t, r[2].Net.Client(t))
		reachable := ended(last)
		time.Sleep(time.Minute)
		for range 10 {
			if runtime.GC(); !reachable() {
				break
			}
		}
		if reachable() {
			t.Error("something still refers to it")
		}
		testlock.Works(t, testlock.RedLock("x", all...))
	})
}

// A hold with a fixed lease ends without an Unlock. The next goroutine of its process must then get its turn,
// whichever part ends first.
func TestTheProcessThatWaitsForItsOwnFixedLeaseGetsTheLockAtItsEnd(t *testing.T) {
	const lease = 2 * time.Second
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		for range 50 {
			start := time.Now()
			ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(lease))
			got := testlock.Go(bg, m)
			time.Sleep(time.Until(hold.Deadline()))
			testlock.WantError(t, "the context", ctx.Err(), context.Canceled)
			next := testlock.Granted(t, got)
			if took := time.Since(start); took < lease || took > lease+10*time.Millisecond {
				t.Fatalf("it was granted after %v, where the lease is %v", took, lease)
			}
			testlock.Unlock(t, next)
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			time.Sleep(time.Second)
		}
	})
}

func TestInspectShowsThatARedLockStaysTakenAfterItsUnlock(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m, ops := r.warm(t), r.redLock(t)
		_, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(time.Minute))
		owner := func() string {
			synctest.Wait()
			st := testlock.Inspect(t, ops)
			if !st.Held || st.Session != r.holders()[0] || strings.TrimSuffix(st.Owner, "~") != st.Session {
				t.Errorf("%+v", st)
			}
			return st.Owner
		}
		if o := owner(); strings.HasSuffix(o, "~") {
			t.Errorf("it is held by %q", o)
		}
		testlock.Unlock(t, hold)
		if o := owner(); !strings.HasSuffix(o, "~") {
			t.Errorf("it stays taken, and is held by %q", o)
		}
		_, _, err := ops.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		if err == nil || !strings.Contains(err.Error(), "unlocked, and stays taken for another") {
			t.Errorf("TryLock: %v", err)
		}
		if freed, err := ops.ForceUnlock(bg); !freed || err != nil {
			t.Errorf("ForceUnlock: %v, %v", freed, err)
		}
		r.onlyTokens(t)
	})
}

// A part that stayed taken would keep others out while another server is down. Proves: HoldAtLeast
func TestARedLockThatWasLostBeforeItsUnlockDoesNotStayTaken(t *testing.T) {
	for what, notices := range map[string]bool{"noticed by a renewal": true, "noticed by Unlock": false} {
		t.Run(what, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				all := r.process(t)
				m := testlock.Warm(t, testlock.RedLock("x", all...))
				ctx, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(time.Hour))
				synctest.Wait()
				for _, w := range r[:2] {
					w.FlushAll()
				}
				if notices {
					<-ctx.Done()
					if n := r.held(); n > 0 {
						t.Errorf("before Unlock, it is taken on %d servers", n)
					}
				}
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
				for _, s := range all {
					testlock.Must(t, s.Close())
				}
				if n := r.held(); n > 0 {
					t.Errorf("it stays taken on %d servers", n)
				}
			})
		})
	}
}

// The observer is notified of the end of such a call, as for a lock on one server.
func TestACallThatEndsAtOnceIsReportedForARedLockAsForAnyLock(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		var events []rlock.Event
		all := r.process(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			events = append(events, e)
		})))
		canceled, cancel := context.WithCancel(bg)
		cancel()
		locks := []rlock.Locker{testlock.RedLock("x", all...), rlock.New(all[0], "x")}
		reports := func(ctx context.Context, want error) {
			t.Helper()
			for _, l := range locks {
				events = nil
				_, _, err := l.Lock(ctx)
				testlock.WantError(t, "Lock", err, want)
				if len(events) != 1 || events[0].Type != rlock.EventNotAcquired || events[0].Err != err {
					t.Errorf("%T: %v: %+v", l, err, events)
				}
			}
		}
		reports(canceled, context.Canceled)
		testlock.Must(t, all[0].Close())
		reports(bg, rlock.ErrClosed)
	})
}

func TestTheLossOfARedLockSaysWhichRenewalsFailedLast(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		lost := make(chan rlock.Event, 10)
		watch := testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventLost {
				lost <- e
			}
		})
		long := rlock.WithWatchdogTimeout(30 * time.Second) // longer than go-redis's 10 s
		m := r.warm(t, rlock.WithLogger(log.Logger()), rlock.WithObserver(watch), long)
		ctx, hold := testlock.Lock(t, m, bg)
		synctest.Wait()
		time.Sleep(time.Minute)
		r[0].SetError("NOREPLICAS Not enough good replicas to write.")
		r[1].Net.Freeze()
		<-ctx.Done()
		reason := fmt.Sprint((<-lost).Err)
		synctest.Wait()
		for _, words := range []string{
			"its lease ran out before it was renewed; the last renewals failed: ",
			"server " + r[0].Net.Addr() + ": NOREPLICAS", "server " + r[1].Net.Addr() + ": ", "i/o timeout",
		} {
			if !strings.Contains(reason, words) || !strings.Contains(log.String(), words) {
				t.Errorf("%q is not in %q, or not in %s", words, reason, log)
			}
		}
		const line = `msg="lockline: lock lost" lock=x kind=q `
		if strings.Contains(reason, r[2].Net.Addr()) || log.Count(line) != 1 {
			t.Errorf("%s; %s", reason, log)
		}
		r[0].SetError("")
		r[1].Net.Thaw()
		err := hold.Unlock(bg)
		testlock.WantError(t, "Unlock", err, rlock.ErrLost)
		if want := strings.TrimPrefix(reason, "lockline: "); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	})
}

// The servers have forgotten the hold, and Unlock finds that before the next renewal.
func TestALossThatOnlyUnlockHasNoticedIsReportedAsALoss(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		told := make(chan rlock.Event, 10)
		watch := rlock.WithObserver(testlock.Observer(func(e rlock.Event) { told <- e }))
		_, hold := testlock.Lock(t, r.warm(t, rlock.WithLogger(log.Logger()), watch), bg)
		synctest.Wait()
		for len(told) > 0 {
			<-told
		}
		r[0].FlushAll()
		r[2].FlushAll()
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		e := <-told
		testlock.WantError(t, "the event", e.Err, rlock.ErrLost)
		if e.Type != rlock.EventLost || e.Token != hold.Token() || len(told) != 0 ||
			log.Count("lock lost") != 1 {
			t.Errorf("%v of token %d, and %d more events; logged: %s", e.Type, e.Token, len(told), log)
		}
	})
}

// The hold is lost while the observer still handles EventAcquired.
func TestALossIsReportedAfterItsAcquisition(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		order := make(chan string, 10)
		watch := rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventAcquired {
				r[0].FlushAll()
				r[1].FlushAll()
				time.Sleep(2 * renewal)
			}
			order <- e.Type.String()
		}))
		_, hold := testlock.Lock(t, r.redLock(t, watch), bg)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		synctest.Wait()
		if first, second := <-order, <-order; first != "Acquired" || second != "Lost" {
			t.Errorf("%s was reported before %s", first, second)
		}
	})
}

// The session is closed while the observer still handles EventAcquired.
func TestTheReleaseByCloseIsReportedAfterItsAcquisition(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		order := make(chan string, 10)
		var all []*rlock.Session
		closed := make(chan error, 1)
		all = r.process(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.Type == rlock.EventAcquired {
				go func() { closed <- all[0].Close() }()
				time.Sleep(time.Second)
			}
			order <- e.Type.String()
		})))
		_, hold := testlock.Lock(t, testlock.RedLock("x", all...), bg)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrClosed)
		testlock.Must(t, testlock.Receive(t, "the end of Close", closed))
		synctest.Wait()
		if first, second := <-order, <-order; first != "Acquired" || second != "Released" {
			t.Errorf("%s was reported before %s", first, second)
		}
	})
}

// A renewal that failed long before the loss is not named as its reason.
func TestTheLossOfARedLockDoesNotNameARenewalThatWorkedAgain(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		m := r.warm(t, rlock.WithLogger(log.Logger()))
		ctx, hold := testlock.Lock(t, m, bg)
		r[0].SetError("NOREPLICAS Not enough good replicas to write.")
		time.Sleep(15 * time.Second)
		r[0].SetError("")
		time.Sleep(time.Minute)
		r[1].Net.Refuse(true)
		r[2].Net.Refuse(true)
		<-ctx.Done()
		synctest.Wait()
		_, loss, _ := strings.Cut(log.String(), "lock lost")
		if log.Count("lock lost") != 1 || strings.Contains(loss, "NOREPLICAS") ||
			!strings.Contains(loss, "connection refused") {
			t.Error(log)
		}
		r[1].Net.Refuse(false)
		r[2].Net.Refuse(false)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

// Without the address, the warnings about different servers would be the same.
func TestALineAboutAServerOfARedLockHasItsAddress(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		m := r.warm(t, rlock.WithLogger(log.Logger()))
		hold := testlock.Take(t, m)
		r[1].Net.Refuse(true)
		time.Sleep(2 * time.Minute)
		if log.Count("a RedLock is held by a bare majority") == 0 ||
			log.Count("server="+r[1].Net.Addr()) == 0 ||
			log.Count("kind=q") == 0 {
			t.Error(log)
		}
		r[1].Net.Refuse(false)
		testlock.Unlock(t, hold)
	})
}

// silent makes a client wait for an hour for a reply, so that its timeout ends no call of a test.
func silent(o *redis.Options) { o.ReadTimeout = time.Hour }

// The client waits for an hour for servers that do not reply, but the call returns at its bound.
func TestCallsOfARedLockReturnAtTheirBoundsThoughServersAreSilent(t *testing.T) {
	for what, c := range map[string]struct {
		most time.Duration
		call func(m *multilock.RedLock, held context.Context, hold *rlock.Hold) error
	}{
		"Unlock": {5 * time.Second, func(_ *multilock.RedLock, _ context.Context, hold *rlock.Hold) error {
			return hold.Unlock(bg)
		}},
		"Unlock with a context that has ended": {5 * time.Second,
			func(_ *multilock.RedLock, _ context.Context, hold *rlock.Hold) error {
				ctx, cancel := context.WithCancel(bg)
				cancel()
				return hold.Unlock(ctx)
			}},
		"Unlock with a deadline": {time.Second,
			func(_ *multilock.RedLock, _ context.Context, hold *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				return hold.Unlock(ctx)
			}},
		"Inspect with a deadline": {10 * time.Millisecond,
			func(m *multilock.RedLock, _ context.Context, _ *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
				defer cancel()
				_, err := m.Inspect(ctx)
				return err
			}},
		"Lock with a deadline": {time.Second,
			func(m *multilock.RedLock, _ context.Context, _ *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				_, _, err := m.Lock(ctx)
				return err
			}},
		"Lock with WaitAtMost": {time.Second,
			func(m *multilock.RedLock, _ context.Context, _ *rlock.Hold) error {
				_, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second))
				return err
			}},
		"a nested Lock": {time.Second, func(m *multilock.RedLock, held context.Context, _ *rlock.Hold) error {
			_, _, err := m.Lock(held, rlock.WaitAtMost(time.Second))
			return err
		}},
		"a nested Lock that is the last": {time.Second,
			func(m *multilock.RedLock, held context.Context, hold *rlock.Hold) error {
				time.AfterFunc(time.Second/2, func() { _ = hold.Unlock(bg) })
				_, _, err := m.Lock(context.WithoutCancel(held), rlock.WaitAtMost(time.Second))
				return err
			}},
	} {
		t.Run(what, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				m := testlock.Warm(t, testlock.RedLock("x", r.clients(t, silent)...))
				held, hold := testlock.Lock(t, m, bg)
				synctest.Wait()
				for _, w := range r[:2] {
					w.Net.Freeze()
				}
				start := time.Now()
				err := c.call(m, held, hold)
				if took := time.Since(start); err == nil || took > c.most+100*time.Millisecond {
					t.Errorf("%v after %v", err, took)
				}
				for _, w := range r[:2] {
					w.Net.Thaw()
				}
				_ = hold.Unlock(bg)
				time.Sleep(time.Minute)
				r.onlyTokens(t)
			})
		})
	}
}

func TestTheTokenOfABareMajorityIsNotWaitedForBeyondTheCallersBound(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		const bound = 100 * time.Millisecond
		q, err := multilock.NewQuorum(r.clients(t, silent), multilock.WithServerTimeout(7*time.Second))
		testlock.Must(t, err)
		m := testlock.Warm(t, q.New("x"))
		synctest.Wait()
		r[2].Net.Refuse(true)
		testlock.Works(t, m)
		synctest.Wait()
		remembers(r[0], time.Now().Add(time.Hour).UnixMicro()) // the other server has to store it
		r[1].Net.OnRequest(holds("renew"))
		start := time.Now()
		_, _, err = m.Lock(bg, rlock.WaitAtMost(bound))
		if took := time.Since(start); err == nil || took > bound+110*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		r[1].Net.OnRequest(nil)
		for _, held := range r[1].Net.Held() {
			testlock.Must(t, r[1].Net.Release(held))
		}
		r[2].Net.Refuse(false)
		time.Sleep(time.Hour)
	})
}

func TestCallsOfAMultiLockReturnAtTheirBoundsThoughAServerIsSilent(t *testing.T) {
	type call = func(l *multilock.MultiLock, held context.Context, hold *rlock.Hold) error
	for what, c := range map[string]struct {
		most time.Duration
		call call
	}{
		"Unlock": {5 * time.Second, func(_ *multilock.MultiLock, _ context.Context, hold *rlock.Hold) error {
			return hold.Unlock(bg)
		}},
		"Unlock with a deadline": {time.Second,
			func(_ *multilock.MultiLock, _ context.Context, hold *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				return hold.Unlock(ctx)
			}},
		"Lock with WaitAtMost": {time.Second, func(
			l *multilock.MultiLock, _ context.Context, _ *rlock.Hold,
		) error {
			_, _, err := l.Lock(bg, rlock.WaitAtMost(time.Second))
			return err
		}},
		"a nested Lock": {time.Second, func(
			l *multilock.MultiLock, held context.Context, _ *rlock.Hold,
		) error {
			_, _, err := l.Lock(held, rlock.WaitAtMost(time.Second))
			return err
		}},
		"TryLock with a deadline": {time.Second,
			func(l *multilock.MultiLock, _ context.Context, _ *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				_, _, err := l.TryLock(ctx)
				return err
			}},
		"Extend with a deadline": {time.Second,
			func(_ *multilock.MultiLock, _ context.Context, hold *rlock.Hold) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				return hold.Extend(ctx, time.Minute)
			}},
	} {
		t.Run(what, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				there := testlock.NewWire(t)
				here := testlock.NewSession(t, w.Net.Client(t, silent))
				l := testlock.Warm(t, multilock.New(rlock.New(here, "a"), rlock.New(here, "b"),
					rlock.New(testlock.NewSession(t, there.Net.Client(t, silent)), "c")))
				held, hold := testlock.Lock(t, l, bg)
				there.Net.Freeze()
				start := time.Now()
				err := c.call(l, held, hold)
				if took := time.Since(start); err == nil || took > c.most+150*time.Millisecond {
					t.Errorf("%v after %v", err, took)
				}
				there.Net.Thaw()
				_ = hold.Unlock(bg)
				time.Sleep(time.Minute)
				testlock.OnlyTokens(t, w.Client)
				testlock.OnlyTokens(t, there.Client)
			})
		})
	}
}

// The bound of Unlock also holds if the members need several pipelines.
func TestAMultiLockOfManyMembersIsUnlockedWithinTheTimeOfOne(t *testing.T) {
	for what, most := range map[string]time.Duration{
		"a context that never ends": 5 * time.Second, "a context without a deadline": lease,
	} {
		t.Run(what, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				_, members := namesOf(testlock.NewSession(t, w.Net.Client(t, silent)), 301)
				l := testlock.Warm(t, multilock.New(members...))
				hold, ctx := testlock.Take(t, l, rlock.WithLease(time.Hour)), bg
				if most == lease {
					cancelable, cancel := context.WithCancel(bg)
					defer cancel()
					ctx = cancelable
				}
				w.Net.Freeze()
				start := time.Now()
				err := hold.Unlock(ctx)
				if took := time.Since(start); err == nil || took > most+time.Second {
					t.Errorf("%v after %v", err, took)
				}
				w.Net.Thaw()
				time.Sleep(time.Minute)
				testlock.OnlyTokens(t, w.Client) // all members are released, also after Unlock has returned
			})
		})
	}
}

// WaitAtMost allows at least one attempt, even if it is shorter than a round trip. Package rlock has a test
// for a single lock.
func TestAWaitOfLessThanTwoMillisecondsGetsAMultiLockThatIsFree(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, members := namesOf(testlock.NewSession(t, w.Client), 3)
		l := testlock.Warm(t, multilock.New(members...))
		w.Net.SetDelay(900 * time.Microsecond)
		for _, wait := range []time.Duration{time.Millisecond, 3 * time.Millisecond} {
			testlock.Unlock(t, testlock.Take(t, l, rlock.WaitAtMost(wait)))
		}
		w.Net.SetDelay(10 * time.Millisecond)
		start := time.Now()
		if _, _, err := l.Lock(bg, rlock.WaitAtMost(time.Millisecond)); err == nil ||
			time.Since(start) > 25*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

package locktest_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

func lock(t testing.TB, l rlock.Locker, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.Lock(bg, options...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, hold
}

// within returns a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	t.Cleanup(cancel)
	return ctx
}

func TestLeasesAreRenewedAndEndByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := server.NewSession(), server.NewSession()
		renewed, hold := lock(t, rlock.New(mine, "renewed"))
		fixed, _ := lock(t, rlock.New(mine, "fixed"), rlock.WithLease(time.Minute))
		start := time.Now()
		<-fixed.Done()
		if took := time.Since(start); took < 59*time.Second || took > time.Minute {
			t.Errorf("a lease of a minute ended after %v", took)
		}
		time.Sleep(time.Second)
		locktest.Take(t, rlock.New(theirs, "fixed"))
		time.Sleep(3 * time.Hour)
		if renewed.Err() != nil {
			t.Error("the hold was not renewed")
		}
		if err := hold.Unlock(bg); err != nil {
			t.Error(err)
		}
	})
}

func TestASilentServerAnswersNothingUntilItResumes(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		session := server.NewSession()
		held, hold := lock(t, rlock.New(session, "held"))
		server.Silence()
		for _, s := range []*rlock.Session{session, server.NewSession()} {
			start := time.Now()
			_, _, err := rlock.New(s, "free").TryLock(within(t, 300*time.Millisecond))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) < 300*time.Millisecond {
				t.Errorf("TryLock: %v after %v", err, time.Since(start))
			}
		}
		server.Resume()
		if err := hold.Extend(bg, time.Minute); err != nil || held.Err() != nil {
			t.Errorf("the hold after the outage: %v, %v", err, held.Err())
		}
		locktest.Take(t, rlock.New(server.NewSession(), "free"), rlock.WaitAtMost(10*time.Second))
	})
}

func TestAProcessThatIsCutOffLosesItsLockBeforeAnotherOneHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := server.NewSession(), server.NewSession()
		held, hold := lock(t, rlock.New(mine, "x"))
		server.Silence(mine)
		start := time.Now()
		_, next := lock(t, rlock.New(theirs, "x"))
		if held.Err() == nil || !errors.Is(context.Cause(held), rlock.ErrLost) {
			t.Errorf("another process has the lock, and the cause is %v", context.Cause(held))
		}
		if took := time.Since(start); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("the lock was free after %v", took)
		}
		if next.Token() <= hold.Token() {
			t.Errorf("token %d after %d", next.Token(), hold.Token())
		}
		server.Resume(mine)
		if _, _, err := rlock.New(mine, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock of the process that is back: %v", err)
		}
		server.Resume(mine) // a second Resume changes nothing
	})
}

func TestAServerThatRefusesConnectionsKeepsItsLocks(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := server.NewSession(), server.NewSession()
		held, hold := lock(t, rlock.New(mine, "x"))
		server.Refuse()
		if _, _, err := rlock.New(theirs, "x").TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		if err := server.Client().Ping(bg).Err(); err == nil {
			t.Error("a new client is served")
		}
		server.Resume()
		if _, _, err := rlock.New(theirs, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock after Resume: %v", err)
		}
		if err := hold.Unlock(bg); err != nil || !errors.Is(context.Cause(held), rlock.ErrNotHeld) {
			t.Errorf("Unlock: %v, cause %v", err, context.Cause(held))
		}
		server.Refuse(mine)
		locktest.Take(t, rlock.New(theirs, "x"))
		if _, _, err := rlock.New(mine, "y").TryLock(bg); err == nil {
			t.Error("the session that is refused has a lock")
		}
	})
}

func TestAServerThatFailsRefusesWithItsError(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		m := rlock.New(server.NewSession(), "x")
		server.Fail("NOPERM User default has no permissions to run the 'evalsha' command")
		_, _, err := m.TryLock(bg)
		if err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("TryLock: %v", err)
		}
		server.Resume()
		locktest.Take(t, m)
	})
}

func TestAServerRestartsEmptyAndServesAgain(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := server.NewSession(), server.NewSession()
		held, hold := lock(t, rlock.New(mine, "x"))
		if err := server.Client().Set(bg, "data", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		server.Silence(theirs)
		server.Refuse()
		server.Fail("LOADING Redis is loading the dataset in memory")
		server.Restart()
		if held.Err() == nil {
			t.Error("Restart has returned, and the context goes on")
		}
		if n, err := server.Client().DBSize(bg).Result(); n != 0 || err != nil {
			t.Errorf("%d keys, %v", n, err)
		}
		next := locktest.Take(t, rlock.New(theirs, "x"))
		if next.Token() <= hold.Token() {
			t.Errorf("token %d after %d", next.Token(), hold.Token())
		}
		if _, _, err := rlock.New(mine, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		if cause := context.Cause(held); !errors.Is(cause, rlock.ErrLost) {
			t.Errorf("cause %v", cause)
		}
	})
}

func TestAWaiterRidesOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, outage := range map[string]func(*locktest.Server){
			"silence": func(s *locktest.Server) { s.Silence() },
			"refusal": func(s *locktest.Server) { s.Refuse() },
			"error":   func(s *locktest.Server) { s.Fail("LOADING Redis is loading the dataset in memory") },
		} {
			server := locktest.NewServer(t)
			hold := locktest.Take(t, rlock.New(server.NewSession(), "x"))
			got := make(chan error, 1)
			go func() {
				_, _, err := rlock.New(server.NewSession(), "x").Lock(within(t, time.Minute))
				got <- err
			}()
			time.Sleep(time.Second)
			outage(server)
			time.Sleep(5 * time.Second)
			server.Resume()
			if err := hold.Unlock(bg); err != nil {
				t.Errorf("%s: Unlock: %v", name, err)
			}
			if err := <-got; err != nil {
				t.Errorf("%s: Lock: %v", name, err)
			}
		}
	})
}

func TestLoseEndsHoldsOfEveryPrefixAndLease(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		odd := server.NewSession(rlock.WithPrefix("my:app"))
		first, _ := lock(t, rlock.New(odd, "}x"))
		second, _ := lock(t, rlock.New(server.NewSession(), "}x"), rlock.WithLease(time.Hour))
		other, _ := lock(t, rlock.New(odd, "}x2"))
		server.Lose("}x")
		for _, ctx := range []context.Context{first, second} {
			if context.Cause(ctx) != rlock.ErrLost {
				t.Errorf("cause %v", context.Cause(ctx))
			}
		}
		if other.Err() != nil {
			t.Error("a lock of another name is lost")
		}
	})
}

func TestLoseTakesAllHoldersOfASemaphoreAndTheirNestedHolds(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		var all []context.Context
		for range 2 {
			session := server.NewSession()
			for range 2 {
				ctx, _ := lock(t, semaphore.New(session, "x", 9).Locker(2))
				all = append(all, ctx)
			}
		}
		m := rlock.New(server.NewSession(), "x")
		outer, _ := lock(t, m)
		nested, _, err := m.Lock(outer)
		if err != nil {
			t.Fatal(err)
		}
		server.Lose("x") // also loses the lock, which has the same name
		for i, ctx := range append(all, outer, nested) {
			if context.Cause(ctx) != rlock.ErrLost {
				t.Errorf("hold %d: cause %v", i, context.Cause(ctx))
			}
		}
	})
}

func TestLoseWaitsForNoSessionThatIsCutOff(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine := server.NewSession()
		held, _ := lock(t, rlock.New(mine, "x"))
		server.Silence(mine)
		server.Lose("x")
		if held.Err() != nil {
			t.Error("a process that is cut off has learned of the loss")
		}
		locktest.Take(t, rlock.New(server.NewSession(), "x"))
		server.Resume(mine)
	})
}

func TestLoseLeavesDataAloneThatHasTheNameOfALock(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		client := server.Client()
		if err := client.HSet(bg, "orders:42", "state", "paid").Err(); err != nil {
			t.Fatal(err)
		}
		held, _ := lock(t, rlock.New(server.NewSession(), "orders:42"))
		server.Lose("orders:42")
		if v := client.HGet(bg, "orders:42", "state").Val(); v != "paid" || held.Err() == nil {
			t.Errorf("%q, %v", v, held.Err())
		}
	})
}

func TestALeaderIsDeposedAndAnotherOneLeads(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		leading, _, err := election.New(server.NewSession(), "x").Campaign(bg, "first")
		if err != nil {
			t.Fatal(err)
		}
		second := election.New(server.NewSession(), "x")
		got := make(chan error, 1)
		go func() {
			_, _, err := second.Campaign(within(t, 10*time.Second), "second")
			got <- err
		}()
		server.Lose("x")
		if !errors.Is(context.Cause(leading), rlock.ErrLost) {
			t.Errorf("cause %v", context.Cause(leading))
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if leader, ok, err := second.Leader(bg); leader.Value != "second" || !ok || err != nil {
			t.Errorf("%+v, %v, %v", leader, ok, err)
		}
	})
}

func TestALatchOpensForAnotherProcess(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := latch.New(server.NewSession(), "x"), latch.New(server.NewSession(), "x")
		if set, err := mine.TrySet(bg, 1); !set || err != nil {
			t.Fatal(set, err)
		}
		go func() { _ = theirs.CountDown(bg) }()
		if err := mine.Wait(within(t, 10*time.Second)); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionsOfOneServerAreOneServerToARedLock(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		_, err := multilock.NewQuorum([]*rlock.Session{server.NewSession(), server.NewSession(),
			server.NewSession()})
		if err == nil || !strings.Contains(err.Error(), "of one server") {
			t.Errorf("a RedLock on one server: %v", err)
		}
		sessions := []*rlock.Session{locktest.NewSession(t), locktest.NewSession(t), locktest.NewSession(t)}
		locktest.Take(t, testlock.RedLock("x", sessions...))
	})
}

func TestClientsOfTheTestReachTheServer(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		options := server.Options()
		options.ClientName = "mine"
		client := redis.NewClient(options)
		defer func() { _ = client.Close() }()
		session, err := rlock.NewSession(server.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		hold := locktest.Take(t, rlock.New(session, "x"))
		if name, err := client.ClientGetName(bg).Result(); name != "mine" || err != nil {
			t.Errorf("name %q, %v", name, err)
		}
		server.Lose("x") // does not notify the session, which NewSession has not made
		if hold.Err() != nil {
			t.Errorf("%v at once", hold.Err())
		}
		if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("with the next request: %v", err)
		}
	})
}

func TestObserversOfTheTestAreCalled(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		events := make(observer, 10)
		session := locktest.NewSession(t, rlock.WithObserver(events))
		_, hold := lock(t, rlock.New(session, "x"))
		if err := hold.Unlock(bg); err != nil {
			t.Fatal(err)
		}
		if a, b := <-events, <-events; a != rlock.EventAcquired || b != rlock.EventReleased {
			t.Errorf("%v, %v", a, b)
		}
	})
}

type observer chan rlock.EventType

func (o observer) Observe(_ context.Context, e rlock.Event) { o <- e.Type }

func TestSessionsGiveBackTheirLocksAndCloseBeforeTheirClientsDo(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		var session *rlock.Session
		var hold *rlock.Hold
		said := judge(t, func(t testing.TB) {
			session = locktest.NewSession(t)
			hold = locktest.Take(t, rlock.New(session, "x"))
		})
		if len(said) > 0 || !errors.Is(hold.Err(), rlock.ErrClosed) {
			t.Errorf("it says %q, and the hold ended with %v", said, hold.Err())
		}
		if _, _, err := rlock.New(session, "x").TryLock(bg); !errors.Is(err, rlock.ErrClosed) {
			t.Errorf("TryLock: %v", err)
		}
	})
}

// If a goroutine is left, synctest fails the test in a bubble, and goleak fails the test in real time.
func TestWhateverATestLeavesBehindIsEnded(t *testing.T) {
	for name, leave := range map[string]func(t testing.TB, server *locktest.Server, mine *rlock.Session){
		"nothing":   func(testing.TB, *locktest.Server, *rlock.Session) {},
		"a silence": func(_ testing.TB, s *locktest.Server, _ *rlock.Session) { s.Silence() },
		"one that is cut off": func(t testing.TB, s *locktest.Server, mine *rlock.Session) {
			s.Silence(mine)
			_, _, _ = rlock.New(mine, "y").TryLock(within(t, 50*time.Millisecond))
		},
		"a refusal": func(t testing.TB, s *locktest.Server, mine *rlock.Session) {
			s.Refuse()
			_, _, _ = rlock.New(mine, "y").TryLock(within(t, 50*time.Millisecond))
		},
		"an error": func(t testing.TB, s *locktest.Server, mine *rlock.Session) {
			s.Fail("LOADING Redis is loading the dataset in memory")
			_, _, _ = rlock.New(mine, "y").TryLock(within(t, 50*time.Millisecond))
		},
		"a restart":        func(_ testing.TB, s *locktest.Server, _ *rlock.Session) { s.Restart() },
		"a lost lock":      func(_ testing.TB, s *locktest.Server, _ *rlock.Session) { s.Lose("x") },
		"a closed session": func(_ testing.TB, _ *locktest.Server, mine *rlock.Session) { _ = mine.Close() },
		"an idle client":   func(_ testing.TB, s *locktest.Server, _ *rlock.Session) { s.Client().Ping(bg) },
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			run := func(t testing.TB) {
				ended := make(chan struct{})
				t.Cleanup(func() { <-ended }) // runs after the sessions have ended
				server := locktest.NewServer(t)
				mine, theirs := server.NewSession(), server.NewSession()
				_, _ = lock(t, rlock.New(mine, "x"))
				go func() {
					defer close(ended)
					_, _, _ = rlock.New(theirs, "x").Lock(bg)
				}()
				leave(t, server, mine)
			}
			t.Run("fake time", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { run(t) })
			})
			t.Run("real time", func(t *testing.T) {
				run(t)
			})
			goleak.VerifyNone(t, before)
		})
	}
}

func TestAForgottenHoldInABubbleEndsNoProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := locktest.NewSession(t)
		forget := func() {
			_, _, _ = rlock.New(session, "x").Lock(bg)
			_, _, _ = semaphore.New(session, "x", 1).Acquire(bg, 1)
			_, _, _ = multilock.New(rlock.New(session, "y"), rlock.New(session, "z")).Lock(bg)
			_, _, _ = election.New(session, "e").Campaign(bg, "")
			_, _, _ = testlock.RedLock("r", session).Lock(bg)
		}
		forget()
		collect(t)
		time.Sleep(time.Minute)
		if _, _, err := rlock.New(session, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
	})
	collect(t) // frees the Holds of the bubble
}

// collect runs the garbage collector, and waits until the runtime has run all cleanups.
func collect(t testing.TB) {
	t.Helper()
	for range 3 {
		var done atomic.Bool // not a channel, because it would belong to a bubble
		runtime.AddCleanup(new([16]byte), func(done *atomic.Bool) { done.Store(true) }, &done)
		wait(t, &done)
	}
}

// wait runs the garbage collector until done is true. It counts the runs and does not measure time, because
// time may be fake.
func wait(t testing.TB, done *atomic.Bool) {
	t.Helper()
	for range 10_000 {
		if runtime.GC(); done.Load() {
			return
		}
		runtime.Gosched()
	}
	t.Fatal("the collector finds nothing")
}

func TestUnlockedHoldsAreNotKept(t *testing.T) {
	m := rlock.New(locktest.NewSession(t), "x")
	var done atomic.Bool
	func() {
		_, hold := lock(t, m)
		if err := hold.Unlock(bg); err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(hold, func(done *atomic.Bool) { done.Store(true) }, &done)
	}()
	wait(t, &done)
}

func TestABenchmarkCanUseASession(t *testing.T) {
	result := testing.Benchmark(func(b *testing.B) {
		m := rlock.New(locktest.NewSession(b), "x")
		for b.Loop() {
			if err := m.Do(bg, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	if result.N == 0 {
		t.Error("the benchmark failed")
	}
	t.Log(result)
}

func TestParallelSubtestsUseTheSessionOfTheirParent(t *testing.T) {
	session := locktest.NewSession(t)
	for _, name := range []string{"a", "b", "c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := locktest.Take(t, rlock.New(session, name))
			if err := hold.Unlock(bg); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMistakesFailTheTestAndSayWhatToDo(t *testing.T) {
	other := locktest.NewSession(t)
	for what, c := range map[string]struct {
		mistake func(t testing.TB, s *locktest.Server)
		text    string
	}{
		"a wrong option": {
			func(t testing.TB, s *locktest.Server) { s.NewSession(rlock.WithPrefix("")) },
			"locktest: NewSession: lockline: WithPrefix"},
		"a lock that is not free": {
			func(t testing.TB, s *locktest.Server) {
				locktest.Take(t, rlock.New(s.NewSession(), "x"))
				locktest.Take(t, rlock.New(s.NewSession(), "x"))
			}, `locktest: Take: lockline: lock "x"`},
		"a nil lock": {
			func(t testing.TB, s *locktest.Server) { locktest.Take(t, nil) },
			"locktest: Take: the lock is nil"},
		"a loss of nothing": {
			func(t testing.TB, s *locktest.Server) {
				locktest.Take(t, rlock.New(s.NewSession(), "x"))
				s.Lose("y")
			}, `locktest: Lose("y"): nothing of this name is held at this server`},
		"a loss of what was released": {
			func(t testing.TB, s *locktest.Server) {
				err := rlock.New(s.NewSession(), "x").Do(bg, func(context.Context) error { return nil })
				if err != nil {
					t.Error(err)
				}
				s.Lose("x")
			}, `locktest: Lose("x"): nothing of this name is held at this server`},
		"a loss of no name": {
			func(t testing.TB, s *locktest.Server) { s.Lose("") },
			`locktest: Lose: lockline: the name is empty`},
		"a loss while the server fails": {
			func(t testing.TB, s *locktest.Server) {
				locktest.Take(t, rlock.New(s.NewSession(), "x"))
				s.Fail("LOADING not ready")
				s.Lose("x")
			}, "LOADING"},
		"an empty error": {
			func(t testing.TB, s *locktest.Server) { s.Fail("") }, "Resume ends a Fail"},
		"a session of another server": {
			func(t testing.TB, s *locktest.Server) { s.Silence(s.NewSession(), other) },
			"locktest: Silence: the session was not made by NewSession of this server"},
		"a nil session": {
			func(t testing.TB, s *locktest.Server) { s.Client(); s.Resume(nil) },
			"locktest: Resume: the session was not made"},
	} {
		said := judge(t, func(t testing.TB) { c.mistake(t, locktest.NewServer(t)) })
		if len(said) != 1 || !strings.Contains(said[0], c.text) {
			t.Errorf("%s: it says %q", what, said)
		}
	}
}

func TestAServerThatWasMadeOutsideTheBubbleSaysSo(t *testing.T) {
	for what, use := range map[string]func(t testing.TB, server *locktest.Server, session *rlock.Session){
		"NewSession": func(_ testing.TB, server *locktest.Server, _ *rlock.Session) { server.NewSession() },
		"Lose":       func(_ testing.TB, server *locktest.Server, _ *rlock.Session) { server.Lose("x") },
		"TryLock": func(_ testing.TB, _ *locktest.Server, session *rlock.Session) {
			if _, _, err := rlock.New(session, "x").TryLock(bg); err == nil {
				t.Error("it has the lock")
			}
		},
	} {
		said := judge(t, func(outside testing.TB) {
			server := locktest.NewServer(outside)
			session := server.NewSession()
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					use(t, server, session)
				}()
				<-done
			})
		})
		if len(said) != 1 || !strings.Contains(said[0], "outside the synctest bubble") {
			t.Errorf("%s: it says %q", what, said)
		}
	}
}

func TestWhatIsLoggedGoesToTheLogOfTheTest(t *testing.T) {
	// A line that is logged after the end of the test must be dropped without a panic.
	var out strings.Builder
	said := judge(t, func(t testing.TB) {
		server := locktest.NewServer(&logged{t, &out})
		locktest.Take(t, rlock.New(server.NewSession(), "x"))
		server.Lose("x")
	})
	if !strings.Contains(out.String(), "lock lost") || len(said) > 0 {
		t.Errorf("%q, %q", out.String(), said)
	}
}

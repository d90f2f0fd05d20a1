package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	gocronlock "github.com/lockline/lockline/contrib/gocron"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

const apart = 30 * time.Second

// mustLock locks a job, as a scheduler does. It fails the test if Lock returns an error.
func mustLock(t *testing.T, l *gocronlock.Locker, name string) gocron.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), name)
	testlock.Must(t, err)
	return lock
}

func wantLockError(t *testing.T, l *gocronlock.Locker, name string, want error) {
	t.Helper()
	if lock, err := l.Lock(t.Context(), name); !errors.Is(err, want) || lock != nil {
		t.Errorf("Lock: %v, %v, want %v", lock, err, want)
	}
}

// force frees a job's lock, as an operator does.
func force(t *testing.T, session *rlock.Session, name string) {
	t.Helper()
	freed, err := rlock.New(session, "gocron:"+name).ForceUnlock(t.Context())
	testlock.Must(t, err)
	if !freed {
		t.Error("it was not locked")
	}
}

func TestEachTickIsRunOnceThoughTheClocksDiffer(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var machines []*machine
		for range 3 {
			m, l := locking(t, w.Client, apart)
			_, err := l.NewJob(m.scheduler, gocron.DurationJob(time.Minute), "quick", quick)
			testlock.Must(t, err)
			machines = append(machines, m)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		runs, started := int64(0), 0
		for _, m := range machines {
			runs += m.runs.Load()
			for len(m.skipped) > 0 {
				if errors.Is(<-m.skipped, rlock.ErrLocked) {
					started++
				}
			}
		}
		if runs != 10 || started < 20 {
			t.Errorf("%d runs, and %d times it was started already, in 10 ticks of 3 machines", runs, started)
		}
	})
}

func TestARunLongerThanTheLeaseKeepsItsLock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, first := locking(t, w.Client, apart)
		b, second := locking(t, w.Client, apart)
		_, err := first.NewJob(a.scheduler, now(), "long", func(ctx context.Context) error {
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		})
		testlock.Must(t, err)
		testlock.Settle()
		_, err = second.NewJob(b.scheduler, gocron.DurationJob(time.Minute), "long", quick)
		testlock.Must(t, err)
		time.Sleep(9*time.Minute + time.Second)
		if b.runs.Load() != 0 || len(b.skipped) < 9 || !errors.Is(<-b.skipped, rlock.ErrLocked) {
			t.Errorf("%d runs beside the first one, %d ticks skipped", b.runs.Load(), len(b.skipped))
		}
		time.Sleep(2 * time.Minute)
		if a.runs.Load() != 1 || b.runs.Load() == 0 {
			t.Errorf("%d and %d runs in the end", a.runs.Load(), b.runs.Load())
		}
	})
}

func TestARunEndsWithItsLock(t *testing.T) {
	for how, lose := range map[string]func(t *testing.T, w *testlock.Wire, m *machine){
		"freed by force":  func(t *testing.T, _ *testlock.Wire, m *machine) { force(t, m.session, "job") },
		"Redis is silent": func(_ *testing.T, w *testlock.Wire, _ *machine) { w.Down(true) },
		"Redis forgets":   func(_ *testing.T, w *testlock.Wire, _ *machine) { w.Restart() },
	} {
		t.Run(how, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				m, l := locking(t, w.Client, apart)
				begun := make(chan struct{}, 1)
				_, err := l.NewJob(m.scheduler, now(), "job", untilEnd(begun))
				testlock.Must(t, err)
				<-begun
				lose(t, w, m)
				if err := testlock.Receive(t, "the run ends", m.failed); !errors.Is(err, rlock.ErrLost) {
					t.Errorf("it ended with %v", err)
				}
				w.Down(false)
			})
		})
	}
}

func TestAShutdownGivesTheLockBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m, l := locking(t, w.Client, time.Second)
		begun := make(chan struct{}, 1)
		_, err := l.NewJob(m.scheduler, now(), "job", untilEnd(begun))
		testlock.Must(t, err)
		<-begun
		testlock.Must(t, m.scheduler.Shutdown())
		if err := testlock.Receive(t, "the run ends", m.failed); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		time.Sleep(time.Second)
		other := gocronlock.NewLocker(testlock.NewSession(t, w.Client), time.Second)
		testlock.Must(t, mustLock(t, other, "job").Unlock(t.Context()))
	})
}

func TestARunThatIsCalledOffGivesTheLockBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m, l := locking(t, w.Client, apart)
		no := errors.New("not now")
		once := func(uuid.UUID, string) error {
			err := no
			no = nil
			return err
		}
		_, err := l.NewJob(m.scheduler, gocron.DurationJob(time.Minute), "job", quick,
			gocron.WithEventListeners(
				gocron.BeforeJobRunsSkipIfBeforeFuncErrors(once),
				gocron.AfterJobRuns(func(uuid.UUID, string) { m.runs.Add(1) })))
		testlock.Must(t, err)
		time.Sleep(time.Minute + time.Second)
		if m.runs.Load() != 0 {
			t.Error("it ran")
		}
		time.Sleep(time.Minute)
		if m.runs.Load() != 1 {
			t.Errorf("%d runs a minute later", m.runs.Load())
		}
	})
}

func TestARunThatWasSlowToBeginDoesNotWorkBesideTheNextOne(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, l := locking(t, w.Client, time.Second)
		b := start(t, a.session, gocron.WithDistributedLocker(l))
		locked, begin := make(chan struct{}), make(chan struct{})
		_, err := l.NewJob(a.scheduler, now(), "job", never(t),
			gocron.WithEventListeners(
				gocron.BeforeJobRuns(func(uuid.UUID, string) { close(locked); <-begin }),
				gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { a.failed <- err })))
		testlock.Must(t, err)
		<-locked
		force(t, a.session, "job")
		time.Sleep(11 * time.Second) // until a renewal has found the loss
		begun := make(chan struct{}, 1)
		_, err = l.NewJob(b.scheduler, now(), "job", untilEnd(begun))
		testlock.Must(t, err)
		<-begun
		close(begin)
		testlock.Receive(t, "the slow run ends", a.failed)
		if len(b.failed) > 0 {
			t.Errorf("the next one has ended: %v", <-b.failed)
		}
	})
}

func TestAJobDoesNotRunWhereAnElectorReplacesItsLock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		c := campaign(t, session, "1")
		c.wantLeader(t, "at first", nil)
		m := start(t, session, gocron.WithDistributedElector(c))
		_, err := gocronlock.NewLocker(session, apart).NewJob(m.scheduler, now(), "job", never(t))
		testlock.Must(t, err)
		if err := testlock.Receive(t, "an error", m.failed); err == nil {
			t.Error("no error")
		}
	})
}

func TestAJobUsesItsLockerWhateverItsSchedulerHas(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		l := gocronlock.NewLocker(session, apart)
		m := start(t, session, gocron.WithLocation(time.UTC))
		begun := make(chan struct{}, 1)
		_, err := l.NewJob(m.scheduler, now(), "job", untilEnd(begun))
		testlock.Must(t, err)
		<-begun
		wantLockError(t, l, "job", rlock.ErrLocked)
	})
}

func TestARunThatHasLostItsLockKeepsTheNextOneFromBeginning(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m, l := locking(t, w.Client, time.Second)
		begun, end := make(chan struct{}, 1), make(chan struct{})
		_, err := l.NewJob(m.scheduler, gocron.DurationJob(time.Minute), "job", func(context.Context) error {
			begun <- struct{}{}
			<-end // the job ignores that its context ends
			return nil
		})
		testlock.Must(t, err)
		<-begun
		force(t, m.session, "job")
		for range 3 {
			testlock.WantError(t, "a tick beside it", <-m.skipped, rlock.ErrLocked)
		}
		if m.runs.Load() != 0 || len(begun) > 0 {
			t.Error("another run began")
		}
		end <- struct{}{}
		<-begun
		end <- struct{}{}
	})
}

func TestAJobStaysLockedWithoutItsProcess(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		dying, living := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		mustLock(t, gocronlock.NewLocker(dying, apart), "job")
		testlock.Must(t, dying.Close()) // without HoldAtLeast, Close would free the lock
		second := gocronlock.NewLocker(living, apart)
		wantLockError(t, second, "job", rlock.ErrLocked)
		time.Sleep(apart)
		testlock.Must(t, mustLock(t, second, "job").Unlock(t.Context()))
	})
}

func TestTheLockOfADeadProcessComesFree(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Net.Client(t)
		lock := mustLock(t, gocronlock.NewLocker(testlock.NewSession(t, rdb), time.Second), "job")
		_ = rdb.Close() // the dead process can neither renew nor unlock
		other := gocronlock.NewLocker(testlock.NewSession(t, w.Client), time.Second)
		time.Sleep(10 * time.Second)
		wantLockError(t, other, "job", rlock.ErrLocked)
		time.Sleep(5 * time.Second)
		testlock.Must(t, mustLock(t, other, "job").Unlock(t.Context()))
		testlock.WantError(t, "Unlock of the dead one", lock.Unlock(t.Context()), rlock.ErrLost)
	})
}

func TestTheEndOfARunThatLostItsLockLeavesTheNextOneAlone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		l := gocronlock.NewLocker(session, time.Second)
		other := gocronlock.NewLocker(testlock.NewSession(t, w.Client), time.Second)
		lost := mustLock(t, l, "job")
		force(t, session, "job")
		time.Sleep(11 * time.Second) // until a renewal has found the loss
		next := mustLock(t, l, "job")
		testlock.WantError(t, "Unlock of the lost one", lost.Unlock(t.Context()), rlock.ErrLost)
		wantLockError(t, other, "job", rlock.ErrLocked)
		testlock.Must(t, next.Unlock(t.Context()))
	})
}

func TestALockThatCannotBeHadLeavesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Hour })
		session := testlock.NewSession(t, rdb)
		l := gocronlock.NewLocker(session, apart)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.Lock(ended, "job")
		testlock.WantError(t, "after the end of the context", err, context.Canceled)

		w.Down(true)
		begun := time.Now()
		if _, err := l.Lock(t.Context(), "job"); err == nil || time.Since(begun) > 6*time.Second {
			t.Errorf("in an outage: %v after %v", err, time.Since(begun))
		}
		w.Down(false)

		time.Sleep(time.Minute) // until a grant of the silent server is released
		testlock.Must(t, mustLock(t, l, "job").Unlock(t.Context()))
		testlock.Must(t, session.Close())
		wantLockError(t, l, "other", rlock.ErrClosed)
	})
}

func TestATimeApartThatMeansSomethingElseIsRefused(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		m := start(t, session, gocron.WithLocation(time.UTC))
		for apart, says := range map[time.Duration]string{
			-1:                        "-1ns is shorter than 1ms",
			30:                        "30ns is shorter than 1ms: is the unit missing, as in 30*time.Second?",
			time.Millisecond - 1:      "shorter than 1ms",
			11 * 365 * 24 * time.Hour: "longer than ten years",
			time.Millisecond:          "",
			10 * 365 * 24 * time.Hour: "",
			0:                         "",
		} {
			l := gocronlock.NewLocker(session, apart)
			lock, err := l.Lock(t.Context(), apart.String())
			_, jobErr := l.NewJob(m.scheduler, gocron.DurationJob(time.Hour), "job", quick)
			for _, err := range []error{err, jobErr} {
				switch {
				case says == "" && err != nil:
					t.Errorf("%v: %v", apart, err)
				case says != "" && (err == nil || !strings.Contains(err.Error(), "NewLocker: ") ||
					!strings.Contains(err.Error(), says)):
					t.Errorf("%v: %v, want %q", apart, err, says)
				}
			}
			if lock != nil {
				testlock.Must(t, lock.Unlock(t.Context()))
			}
		}
	})
}

func TestATimeApartWithoutAUnitRunsNoJob(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := gocronlock.NewLocker(testlock.NewSession(t, w.Client), 30)
		lock, err := l.Lock(t.Context(), "job")
		if lock != nil || err == nil || !strings.Contains(err.Error(), "30ns is shorter than 1ms") {
			t.Errorf("Lock: %v, %v", lock, err)
		}
	})
}

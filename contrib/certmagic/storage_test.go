package certmagiclock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	certmagiclock "github.com/lockline/lockline/contrib/certmagic"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

const host = "www.example.com"

// storages returns the Storages of two processes, which share their Redis and a folder.
func storages(t *testing.T, w *testlock.Wire) (a, b *certmagiclock.Storage) {
	files := &certmagic.FileStorage{Path: t.TempDir()}
	made := func() *certmagiclock.Storage {
		return certmagiclock.New(testlock.NewSession(t, w.Client), files)
	}
	return made(), made()
}

func wantTryLock(t *testing.T, s *certmagiclock.Storage, ctx context.Context, want bool) {
	t.Helper()
	if got, err := s.TryLock(ctx, "name"); got != want || err != nil {
		t.Errorf("TryLock: %t, %v, want %t", got, err, want)
	}
}

// unlock unlocks the name with a context that has ended. certmagic may do so, too, if it uses the context
// of a request, and this request has ended.
func unlock(t *testing.T, s *certmagiclock.Storage) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testlock.Must(t, s.Unlock(ended, "name"))
}

// lose frees the lock, as an operator does. It then waits until the holder has noticed the loss by its next
// renewal.
func lose(t *testing.T, w *testlock.Wire) {
	t.Helper()
	freed, err := rlock.New(testlock.NewSession(t, w.Client), "certmagic:name").ForceUnlock(t.Context())
	testlock.Must(t, err)
	if !freed {
		t.Error("it was not locked")
	}
	time.Sleep(11 * time.Second)
}

func TestOneInstanceAsksTheCA(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		issuer := newCA(t, func(context.Context, int32) error { time.Sleep(5 * time.Minute); return nil })
		a, b := storages(t, w)
		var all sync.WaitGroup
		for _, storage := range []*certmagiclock.Storage{a, a, b, b} {
			config := instance(t, storage, issuer)
			all.Go(func() {
				if err := config.ObtainCertSync(t.Context(), host); err != nil {
					t.Error(err)
				}
				if _, err := config.CacheManagedCertificate(t.Context(), host); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := issuer.requests.Load(); n != 1 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestAnotherInstanceTakesOverFromADeadOne(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Net.Client(t)
		files := &certmagic.FileStorage{Path: t.TempDir()}
		dying := certmagiclock.New(testlock.NewSession(t, rdb), files)
		living := certmagiclock.New(testlock.NewSession(t, w.Client), files)
		asked, end := make(chan struct{}), make(chan struct{})
		issuer := newCA(t, func(_ context.Context, n int32) error {
			if n > 1 {
				return nil
			}
			close(asked)
			<-end
			return errRefused
		})
		died := make(chan error, 1)
		go func() { died <- instance(t, dying, issuer).ObtainCertSync(t.Context(), host) }()
		<-asked
		_ = rdb.Close() // the dying instance can neither renew nor unlock
		if err := instance(t, living, issuer).ObtainCertSync(t.Context(), host); err != nil {
			t.Error(err)
		}
		close(end)
		if err := <-died; !errors.Is(err, errRefused) {
			t.Errorf("the dead one: %v", err)
		}
		if n := issuer.requests.Load(); n != 2 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

// While the CA is down, certmagic tries again for days. It holds the lock during all that time.
func TestAnInstanceThatLostItsLockDoesNotAskTheCAAgainBesideTheNextOne(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		issuer := newCA(t, func(context.Context, int32) error { return errRefused })
		config := instance(t, a, issuer)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- config.ObtainCertAsync(ctx, host) }()
		asked := func(when string, want bool) {
			t.Helper()
			issuer.requests.Store(0)
			time.Sleep(12 * time.Hour)
			if n := issuer.requests.Load(); (n > 0) != want {
				t.Errorf("%s: the CA was asked %d times", when, n)
			}
		}
		asked("at first", true)
		const name = "issue_cert_" + host
		if ok, err := b.TryLock(t.Context(), name); ok || err != nil {
			t.Errorf("the lock of days is not held: %v", err)
		}
		w.Restart() // Redis forgets the lock
		testlock.Must(t, b.Lock(t.Context(), name))
		time.Sleep(11 * time.Second) // until a renewal finds the loss, the instance may use the CA
		asked("while another instance holds the lock", false)
		testlock.Must(t, b.Unlock(t.Context(), name))
		asked("when the lock is free", true)
		if ok, err := b.TryLock(t.Context(), name); ok || err != nil {
			t.Errorf("it goes on without the lock: %v", err)
		}
		cancel()
		<-ended
		testlock.Must(t, b.Lock(t.Context(), name))
		testlock.Must(t, b.Unlock(t.Context(), name))
	})
}

func TestLocksAreGivenBackAtTheExitOfTheProcess(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		end := make(chan struct{})
		issuer := newCA(t, func(context.Context, int32) error { <-end; return errRefused })
		ended := make(chan error, 1)
		go func() { ended <- instance(t, a, issuer).ObtainCertSync(t.Context(), host) }()
		synctest.Wait()
		certmagic.CleanUpOwnLocks(t.Context(), zap.NewNop())
		if ok, err := b.TryLock(t.Context(), "issue_cert_"+host); !ok || err != nil {
			t.Errorf("TryLock: %t, %v", ok, err)
		}
		close(end)
		<-ended
	})
}

func TestCallsExcludeEachOtherWhateverTheirContext(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		owner := rlock.WithOwner(t.Context())
		testlock.Must(t, a.Lock(owner, "name"))
		wantTryLock(t, a, owner, false)
		wantTryLock(t, a, t.Context(), false)
		wantTryLock(t, b, t.Context(), false)
		got := make(chan error, 1)
		go func() { got <- a.Lock(owner, "name") }()
		testlock.Settle()
		if len(got) > 0 {
			t.Error("Lock did not wait")
		}
		unlock(t, a)
		testlock.Must(t, <-got)
		unlock(t, a)
		wantTryLock(t, b, t.Context(), true)
		wantTryLock(t, a, owner, false)
		unlock(t, b)
	})
}

func TestUnlockWithoutALockIsAnError(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		testlock.Must(t, a.Lock(t.Context(), "name"))
		testlock.WantError(t, "by another process", b.Unlock(t.Context(), "name"), rlock.ErrNotHeld)
		testlock.WantError(t, "a renewal", b.RenewLockLease(t.Context(), "name", 0), rlock.ErrNotHeld)
		wantTryLock(t, b, t.Context(), false)
		unlock(t, a)
		testlock.WantError(t, "a second time", a.Unlock(t.Context(), "name"), rlock.ErrNotHeld)
	})
}

func TestLockEndsWithItsContextAndLeavesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		testlock.Must(t, a.Lock(t.Context(), "name"))
		for _, s := range []*certmagiclock.Storage{a, b} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			testlock.WantError(t, "Lock", s.Lock(ctx, "name"), context.DeadlineExceeded)
			cancel()
		}
		unlock(t, a)
		testlock.Must(t, b.Lock(t.Context(), "name"))
		unlock(t, b)
	})
}

func TestALockIsNotThatOfItsContext(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		testlock.Must(t, a.Lock(ctx, "name"))
		cancel()
		time.Sleep(time.Hour)
		wantTryLock(t, b, t.Context(), false)
		unlock(t, a)
	})
}

func TestALostLockIsLockedAgainByARenewalAndUnlockedOnce(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		wantTryLock(t, a, t.Context(), true)
		lose(t, w)
		wantTryLock(t, b, t.Context(), true)
		testlock.WantError(t, "a renewal", a.RenewLockLease(t.Context(), "name", 0), rlock.ErrLocked)
		unlock(t, b)
		testlock.Must(t, a.RenewLockLease(t.Context(), "name", 0))
		wantTryLock(t, b, t.Context(), false)
		testlock.Must(t, a.RenewLockLease(t.Context(), "name", 0))
		unlock(t, a)
		wantTryLock(t, b, t.Context(), true)
		unlock(t, b)
		testlock.WantError(t, "a second time", a.Unlock(t.Context(), "name"), rlock.ErrNotHeld)
	})
}

func TestUnlockOfALostLockLeavesTheNextOneAlone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		wantTryLock(t, a, t.Context(), true)
		lose(t, w)
		testlock.Must(t, a.Lock(t.Context(), "name")) // as another goroutine would
		unlock(t, a)
		wantTryLock(t, b, t.Context(), false)
		unlock(t, a)
		wantTryLock(t, b, t.Context(), true)
		unlock(t, b)
	})
}

func TestWhatIsLostIsUnlockedWithoutAnError(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		wantTryLock(t, a, t.Context(), true)
		lose(t, w)
		unlock(t, a)
		wantTryLock(t, b, t.Context(), true)
		unlock(t, b)
	})
}

func TestAnUnlockInAnOutageEndsAndTheLockComesFree(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := storages(t, w)
		wantTryLock(t, a, t.Context(), true)
		w.Down(true)
		begun := time.Now()
		if err := a.Unlock(t.Context(), "name"); err == nil || time.Since(begun) > 6*time.Second {
			t.Errorf("Unlock: %v after %v", err, time.Since(begun))
		}
		w.Down(false)
		testlock.Must(t, b.Lock(t.Context(), "name"))
		unlock(t, b)
	})
}

func TestAClosedSessionHasGivenItsLocksBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		a := certmagiclock.New(session, &certmagic.FileStorage{Path: t.TempDir()})
		_, b := storages(t, w)
		wantTryLock(t, a, t.Context(), true)
		testlock.Must(t, session.Close())
		wantTryLock(t, b, t.Context(), true)
		testlock.WantError(t, "a renewal", a.RenewLockLease(t.Context(), "name", 0), rlock.ErrClosed)
		unlock(t, a)
		testlock.WantError(t, "Lock", a.Lock(t.Context(), "name"), rlock.ErrClosed)
		unlock(t, b)
	})
}

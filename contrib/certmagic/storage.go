package certmagiclock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/lockline/lockline/rlock"
)

// Storage is a certmagic.Storage whose locks are in Redis. All other data stays in the storage that New was
// given. A Storage also implements certmagic.TryLocker and certmagic.LockLeaseRenewer.
//
// In Redis, the lock NAME of certmagic has the name certmagic:NAME. If several values of Storage use the same
// Redis and the same prefix, only one of them at a time can hold this lock. This is also true if they keep
// their certificates in different places.
//
// The session renews the locks, so certmagic can hold a lock for days, for example while a CA refuses to
// issue a certificate. If a process dies, its locks are free when their leases have expired.
//
// certmagic does not stop its work when the lock of this work is lost. So, in rare cases, two instances may
// do the same work at the same time. The documentation of certmagic requires code under a lock to tolerate
// this. The session logs each loss.
//
// All methods are safe for concurrent use.
type Storage struct {
	// Storage keeps everything except the locks. Methods that are not part of this interface cannot be
	// called.
	certmagic.Storage

	session *rlock.Session

	mu    sync.Mutex               // guards holds
	holds map[string][]*rlock.Hold // by name: holds without an Unlock; all holds but the last are lost
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a Storage that locks by session, and keeps everything else in storage. It does no I/O. The
// caller must close the session.
func New(session *rlock.Session, storage certmagic.Storage) *Storage {
	return &Storage{Storage: storage, session: session, holds: map[string][]*rlock.Hold{}}
}

// noValues is a context without values. Lockline finds the owner of a call in the values of its context. So
// calls with a context of this type never nest, even if the contexts of two goroutines have the same owner.
type noValues struct{ context.Context }

func (noValues) Value(any) any { return nil }

func (s *Storage) lock(name string) *rlock.Mutex { return rlock.New(s.session, "certmagic:"+name) }

// Lock waits until it holds the lock of this name. It is not reentrant: a second call waits for the Unlock of
// the first call, even in the same goroutine. ctx bounds only the wait. If ctx ends later, the lock stays
// held. Lock returns the errors of [rlock.Mutex.Lock]. After an error, the call holds nothing.
func (s *Storage) Lock(ctx context.Context, name string) error {
	_, hold, err := s.lock(name).Lock(noValues{ctx})
	s.keep(name, hold, err)
	return err
}

// TryLock is like Lock, but does not wait for another holder. It returns false and a nil error if the name is
// locked. certmagic calls TryLock for work that it can leave to the holder. TryLock blocks for one request,
// but at most until ctx ends.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	_, hold, err := s.lock(name).TryLock(noValues{ctx})
	s.keep(name, hold, err)
	if errors.Is(err, rlock.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// keep stores the hold for Unlock, because certmagic passes only the name to Unlock. If err is not nil, there
// is no hold to store.
func (s *Storage) keep(name string, hold *rlock.Hold, err error) {
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[name] = append(s.holds[name], hold)
}

// RenewLockLease checks that this Storage still holds the lock. When certmagic requests a certificate in the
// background, it calls RenewLockLease before each attempt. RenewLockLease ignores the duration, because the
// session renews the lease by itself. While this Storage holds the lock, RenewLockLease returns nil at once.
//
// If the lock was lost, RenewLockLease tries to lock it again, without waiting for another holder. If there
// is another holder, the error matches [rlock.ErrLocked]. certmagic then skips this attempt, and calls
// RenewLockLease again before the next attempt. If this Storage has not locked the name, the error matches
// [rlock.ErrNotHeld]. Any other error is an error of [rlock.Mutex.TryLock].
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	known := len(s.holds[name]) > 0
	held := slices.ContainsFunc(s.holds[name], func(h *rlock.Hold) bool { return h.Err() == nil })
	s.mu.Unlock()
	switch {
	case !known:
		return rlock.ErrNotHeld
	case held:
		return nil
	}
	_, hold, err := s.lock(name).TryLock(noValues{ctx})
	if err != nil {
		return err
	}
	s.keep(name, hold, nil)
	return s.Unlock(ctx, name) // removes the lost hold, which is older than the new one
}

// Unlock releases the lock. It blocks for one request, with the same bounds as [rlock.Hold.Unlock]. If the
// lock was lost, or the session has been closed, Unlock returns nil, because nothing is left to release. If
// this Storage has not locked the name, the error matches [rlock.ErrNotHeld]. After any other error, Redis
// may not have received the release. The session then repeats the release, as after [rlock.Hold.Unlock].
//
// Suppose that a goroutine has lost the lock, and that another goroutine of this Storage then locks the name.
// Then the first Unlock, by either goroutine, ends the lost hold. The second Unlock releases the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	err := s.take(name).Unlock(ctx)
	if errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrClosed) {
		return nil
	}
	return err
}

// take removes the oldest hold of this name and returns it. The oldest hold is removed first, because all
// holds but the newest are lost. If there is no hold, take returns nil. Unlock of a nil hold returns
// rlock.ErrNotHeld.
func (s *Storage) take(name string) *rlock.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := s.holds[name]
	switch len(holds) {
	case 0:
		return nil
	case 1:
		delete(s.holds, name)
	default:
		s.holds[name] = holds[1:]
	}
	return holds[0]
}

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

// Storage is a certmagic.Storage whose locks are in Redis, wherever it keeps the certificates. It implements
// certmagic.TryLocker and certmagic.LockLeaseRenewer, too. Of all that have the same Redis and prefix,
// whatever they keep, one holds a lock of a given name at a time. A lock NAME of certmagic is the lock
// certmagic:NAME.
//
// The session renews the locks, so that certmagic may hold one for days, as while a CA refuses to issue. The
// lock of a process that died is free when its lease is over.
//
// certmagic does not stop work whose lock is lost, and so two instances may rarely do the same. Its
// documentation demands that code with a lock can bear this. Before each attempt that is repeated, it asks
// for the lock again, by [Storage.RenewLockLease]. The session logs each loss.
//
// All methods are safe for concurrent use.
type Storage struct {
	// Storage keeps everything but the locks. Of its own methods, no other than those of the interface can
	// be reached.
	certmagic.Storage

	session *rlock.Session

	mu    sync.Mutex               // guards holds
	holds map[string][]*rlock.Hold // by name, those that wait for an Unlock; all but the last are lost
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New has a storage use the locks of a session. It does no I/O. The caller closes the session.
func New(session *rlock.Session, storage certmagic.Storage) *Storage {
	return &Storage{Storage: storage, session: session, holds: map[string][]*rlock.Hold{}}
}

// A context without values, which are what locks re-enter by. All calls of Lock exclude each other then,
// also if the contexts of two goroutines have one owner.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func (s *Storage) lock(name string) *rlock.Mutex { return rlock.New(s.session, "certmagic:"+name) }

// Lock locks a name. It blocks until it has the lock, or ctx ends. The lock is not reentrant: all calls
// exclude each other, also those of one goroutine. The end of ctx does not end the lock. The errors are those
// of [rlock.Mutex.Lock], and after one the name is not locked.
func (s *Storage) Lock(ctx context.Context, name string) error {
	_, hold, err := s.lock(name).Lock(ownerless{ctx})
	s.keep(name, hold, err)
	return err
}

// TryLock is Lock that does not wait. It returns false and no error if another goroutine or process has the
// lock. certmagic uses it where the work may as well be left to the other one. It blocks for one request, not
// longer than ctx.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	_, hold, err := s.lock(name).TryLock(ownerless{ctx})
	s.keep(name, hold, err)
	if errors.Is(err, rlock.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// keep keeps a hold for Unlock, which certmagic calls with the name alone.
func (s *Storage) keep(name string, hold *rlock.Hold, err error) {
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[name] = append(s.holds[name], hold)
}

// RenewLockLease is called by certmagic before each attempt to get a certificate in the background. The
// session renews the lease, whatever duration is asked for. So it returns nil at once while this Storage
// holds the lock.
//
// If the lock was lost, it is locked again, unless that would have to wait. The error matches
// [rlock.ErrLocked] then, and certmagic makes no attempt until it has asked once more. It matches
// [rlock.ErrNotHeld] if the name was not locked.
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
	_, hold, err := s.lock(name).TryLock(ownerless{ctx})
	if err != nil {
		return err
	}
	s.keep(name, hold, nil)
	return s.Unlock(ctx, name) // of the lost one
}

// Unlock releases the lock. It blocks for one request, not longer than ctx. If ctx has ended or never ends,
// that is 5 s. A lock that was lost, or that the session gave back as it was closed, is no error: it is
// released. The error matches [rlock.ErrNotHeld] if the name was not locked by this Storage. After another
// one Redis may not know of the release: it is told again until the lease is over.
//
// If one goroutine has lost the lock and another one has it by now, the first of the two to call Unlock ends
// the hold that is lost. So no other process gets the lock before both have called.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	err := s.take(name).Unlock(ctx)
	if errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrClosed) {
		return nil
	}
	return err
}

// take takes the oldest hold, since only the youngest can be live. It returns nil, whose Unlock returns
// rlock.ErrNotHeld, if there is none.
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

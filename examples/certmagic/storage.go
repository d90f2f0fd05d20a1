package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/lockline/lockline/rlock"
)

// patience bounds an Unlock while Redis does not answer. The session goes on trying.
const patience = 5 * time.Second

// storage is a certmagic.Storage whose locks are in Redis, wherever it keeps the certificates.
//
// The session renews the locks, so that certmagic may hold one for days, as while a CA refuses
// to issue. The lock of a process that died is free when its lease is over. certmagic cannot be
// told that a lock was lost, and so two instances may rarely do the same work. Its
// documentation demands that code with a lock can bear this. The session logs each loss.
type storage struct {
	// Storage keeps everything but the locks. It is the interface: with a *FileStorage embedded
	// directly, a method that only FileStorage has would become one of this storage.
	certmagic.Storage

	session *rlock.Session

	mu    sync.Mutex               // guards holds
	holds map[string][]*rlock.Hold // by name, those that wait for an Unlock; all but one are lost
}

var (
	_ certmagic.Storage   = (*storage)(nil)
	_ certmagic.TryLocker = (*storage)(nil)
)

func newStorage(keeps certmagic.Storage, session *rlock.Session) *storage {
	return &storage{Storage: keeps, session: session, holds: map[string][]*rlock.Hold{}}
}

// ownerless is a context without values, which are what locks re-enter by. All calls of Lock
// exclude each other then, also if the contexts of two goroutines have one owner.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func (s *storage) lock(name string) *rlock.Mutex { return rlock.New(s.session, "certmagic:"+name) }

// Lock waits until ctx ends.
func (s *storage) Lock(ctx context.Context, name string) error {
	_, hold, err := s.lock(name).Lock(ownerless{ctx})
	s.keep(name, hold, err)
	return err
}

// TryLock returns false if another goroutine or process has the lock. certmagic uses it where
// the work may as well be left to the other one.
func (s *storage) TryLock(ctx context.Context, name string) (bool, error) {
	_, hold, err := s.lock(name).TryLock(ownerless{ctx})
	s.keep(name, hold, err)
	if errors.Is(err, rlock.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// keep keeps a hold for Unlock, which certmagic calls with the name alone.
func (s *storage) keep(name string, hold *rlock.Hold, err error) {
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[name] = append(s.holds[name], hold)
}

// Unlock releases the lock. If one goroutine has lost it and another one has it by now, the
// first of the two to call Unlock ends the hold that is lost, so that no other process gets the lock
// before both have called. A lock that was lost is no error: it is released.
func (s *storage) Unlock(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.take(name).Unlock(ctx); !errors.Is(err, rlock.ErrLost) {
		return err
	}
	return nil
}

// take returns nil if there is no hold, whose Unlock returns rlock.ErrNotHeld.
func (s *storage) take(name string) *rlock.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := s.holds[name]
	if len(holds) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(holds, func(h *rlock.Hold) bool { return h.Err() != nil }))
	hold := holds[i]
	if len(holds) == 1 {
		delete(s.holds, name)
	} else {
		s.holds[name] = slices.Delete(holds, i, i+1)
	}
	return hold
}

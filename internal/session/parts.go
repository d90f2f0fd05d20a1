package session

import (
	"context"

	"github.com/lockline/lockline/internal/failure"
)

// A Part is what one kind keeps in a session.
type Part interface {
	// Shutdown gives back what the part holds. It is called once, when nothing can begin any more. It blocks
	// until Redis was told, or as long as ctx and the session's Ctx allow.
	Shutdown(ctx context.Context) error
}

type part struct {
	key any
	Part
}

// PartOf finds or makes the part of a session that has this key, a value of a type of the caller's own. make
// is called with a mutex held, so it must not use the session. The error is ErrClosed.
func PartOf[P Part](s *Session, key any, make func(*Session) P) (P, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none P
	if s.closed {
		return none, failure.ErrClosed
	}
	for _, p := range s.parts {
		if p.key == key {
			return p.Part.(P), nil
		}
	}
	p := make(s)
	s.parts = append(s.parts, part{key, p})
	return p, nil
}

// Shutdown gives back all that the session holds or waits for and ends it. What is not done when ctx ends is
// left to the leases.
func (s *Session) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		select {
		case <-s.over:
			return nil
		case <-ctx.Done():
			return failure.OfContext(ctx)
		}
	}
	s.closed = true
	close(s.closing)
	parts := s.parts // no more are added now
	s.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		failed := make([]error, len(parts))
		for i := range parts { // the last one first: it may build on those before it
			failed[i] = parts[len(parts)-1-i].Shutdown(ctx)
		}
		s.work.Wait()
		done <- failure.Join(failed...)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = failure.Within("not all was given back, the rest is left to its leases", failure.OfContext(ctx))
	}
	s.cancel()
	s.Watchdog.Close()
	s.onEnd()
	close(s.over)
	return err
}

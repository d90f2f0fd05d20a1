package mutex

import (
	"context"
	"sync"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/session"
)

// table is all locks of a session, of all kinds. It is a part of the session.
type table struct {
	s     *session.Session
	mu    sync.Mutex // guards what follows, and Lock.refs; only the session's is taken under it
	locks map[string]*Lock
}

// One table serves all kinds: the key of a lock has its kind in it.
type tableKey struct{}

func tableOf(s *session.Session) (*table, error) {
	return session.PartOf(s, tableKey{}, func(s *session.Session) *table { return &table{s: s, locks: map[string]*Lock{}} })
}

// Enter finds or makes the lock, for an acquisition. Every Enter has its Leave.
func (m *Mutex) Enter() (*Lock, error) {
	if !m.s.Begin() {
		return nil, failure.ErrClosed
	}
	t, key := m.table, m.keys.Lock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[key]; l != nil {
		l.refs++
		return l, nil
	}
	l, waiting, err := m.kind.NewLock(m.s)
	if err != nil {
		m.s.End()
		return nil, err
	}
	l.Keys, l.Kind, l.table, l.waiting, l.refs = m.keys, m.kind, t, waiting, 1
	t.locks[key] = l
	return l, nil
}

// Leave ends what Enter began.
func (l *Lock) Leave() {
	l.Drop()
	l.S().End()
}

// Keep counts one more reference to the lock, beside those of acquisitions, until Drop.
func (l *Lock) Keep() {
	l.table.mu.Lock()
	l.refs++
	l.table.mu.Unlock()
}

// Drop ends that. The lock is forgotten when no reference to it is left. One that was lost may be used again after that, when
// the name may have another one.
func (l *Lock) Drop() {
	t := l.table
	t.mu.Lock()
	l.refs--
	idle := l.refs == 0 && t.locks[l.Keys.Lock()] == l
	if idle {
		delete(t.locks, l.Keys.Lock())
	}
	t.mu.Unlock()
	if idle {
		l.waiting.Idle()
	}
}

// Shutdown ends the live tenures and frees them in Redis. A lock that is granted after this has looked at it sees that
// the session closes (Tenure.Begin), and gives the grant back.
func (t *table) Shutdown(context.Context) error {
	t.mu.Lock()
	locks := make([]*Lock, 0, len(t.locks))
	for _, l := range t.locks {
		locks = append(locks, l)
	}
	t.mu.Unlock()
	ended := map[Store][]*Tenure{}
	for _, l := range locks {
		l.Mu.Lock()
		live := l.tenure
		l.Mu.Unlock()
		if live != nil && live.end(handover.Closed, nil) {
			ended[l.Store()] = append(ended[l.Store()], live)
		}
	}
	var failed []error
	for store, tenures := range ended {
		failed = append(failed, store.ReleaseAll(tenures))
	}
	return failure.Join(failed...)
}

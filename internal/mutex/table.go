package mutex

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// table is all locks of a session, of all kinds. It is a part of the session.
type table struct {
	s     *session.Session
	inbox *inbox.Inbox
	mu    sync.Mutex // guards what follows, and Lock.refs; only the session's is taken under it
	locks map[string]*Lock
}

// One table serves all kinds: the key of a lock has its kind in it.
type tableKey struct{}

func tableOf(s *session.Session) (*table, error) {
	in, err := inbox.Of(s) // made before the table, so Shutdown ends it after that
	if err != nil {
		return nil, err
	}
	return session.PartOf(s, tableKey{}, func(s *session.Session) *table {
		return &table{s: s, inbox: in, locks: map[string]*Lock{}}
	})
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
	l := &Lock{Keys: m.keys, Kind: m.kind, table: t, refs: 1}
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

// Drop ends that. The lock is forgotten when no reference to it is left. One that was lost may be used again
// after that, when the name may have another one.
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
		l.deafen()
	}
}

// Shutdown ends the live tenures and frees them in Redis. A lock that is granted after this has looked at it
// sees that the session closes (Tenure.Begin), and gives the grant back.
func (t *table) Shutdown(context.Context) error {
	t.mu.Lock()
	locks := make([]*Lock, 0, len(t.locks))
	for _, l := range t.locks {
		locks = append(locks, l)
	}
	t.mu.Unlock()
	var ended []*Tenure
	for _, l := range locks {
		l.Mu.Lock()
		live := l.tenure
		l.Mu.Unlock()
		if live != nil && live.end(handover.Closed, nil) {
			ended = append(ended, live)
		}
	}
	return releaseAll(t.s, ended)
}

// releaseAll sends releases in batches, one server's beside another's.
func releaseAll(s *session.Session, ended []*Tenure) error {
	servers := map[wire.Server][]*Tenure{}
	for _, t := range ended {
		server := s.Link.Server(t.LeaseKey()) // in a Cluster, the master of the slot
		servers[server] = append(servers[server], t)
	}
	var (
		mu     sync.Mutex // guards failed
		failed []error
		wg     sync.WaitGroup
	)
	for server, tenures := range servers {
		wg.Go(func() {
			for chunk := range slices.Chunk(tenures, watchdog.MaxBatch) { // no pipeline is longer than those of renewals
				s.Link.Batch(s.Ctx, server, len(chunk), func(i int) (*wire.Script, wire.Request) {
					r := chunk[i].ReleaseRequest()
					return r.Script, r.Request(time.Time{})
				}, func(i int, reply string, err error) {
					t := chunk[i]
					if err != nil && wire.Judge(err).Resend { // alone this time: another one of the batch may be at fault
						r := t.ReleaseRequest()
						err = t.Lock.ReleaseGrant(s.Ctx, r.Grant, wire.Tries).Err
					}
					if err != nil {
						mu.Lock()
						failed = append(failed, t.Lock.Keys.Failed(err))
						mu.Unlock()
					}
				})
			}
		})
	}
	wg.Wait()
	return failure.Join(failed...)
}

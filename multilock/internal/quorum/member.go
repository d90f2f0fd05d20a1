package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// member is one of the servers.
type member struct {
	*session.Session
	mu      sync.Mutex // guards what follows; a leaf
	slow    bool       // did not answer in time: not asked until it has answered a PING
	probing bool
	probed  time.Time
	last    error     // how it failed, the last time
	odd     time.Time // when something of it was last logged
	closed  time.Time // until then no session stands in a turnstile there
}

// place names the member's server for operators.
func (m *member) place() string {
	if addr := m.Link.Addr(); addr != "" {
		return "server " + addr
	}
	return "the server of session " + m.ID()
}

// probeEvery is the time between two PINGs of a slow member, sent only while a goroutine locks.
const probeEvery = 500 * time.Millisecond

// usable reports whether to ask the member. A server that stands still would cost each round the whole timeout. A slow one is asked for a PING instead, now and then.
func (q *Quorum) usable(m *member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow && !m.probing && time.Since(m.probed) > probeEvery {
		m.probing = true // one PING at a time
		q.s.Go(func() { q.probe(m) })
	}
	return !m.slow
}

// probe finds out whether a slow member answers again. An error by which it refuses the PING is an answer, too.
func (q *Quorum) probe(m *member) {
	sent := time.Now()
	err := m.Link.Ping(q.s.Ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = err != nil && wire.Judge(err).Transient || time.Since(sent) > q.timeout // an answer as slow as that would miss a round, too
	m.probing, m.probed = false, time.Now()
}

// suspect notes that the member did not answer in time, or how it failed.
func (m *member) suspect(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = cmp.Or(err, m.last)
	if !m.slow { // else each late vote would put off the next PING
		m.slow, m.probed = true, time.Now()
	}
}

// oddEvery is the time between two warnings of a member.
const oddEvery = time.Minute

// dissent puts the member's name before the error of a value that Lockline did not write. The others may be a majority
// without that member, so operators would not learn it but for the log.
func (q *Quorum) dissent(m *member, l *mutex.Lock, err error) error {
	m.warn(q.s, "a server of a RedLock has no vote", l.Keys.Name, err)
	return m.named(err)
}

// silent is the error of a member that has not answered, errSlow or errLate, with how it failed the last
// time.
func (m *member) silent(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil {
		err = fmt.Errorf("%w (the last time: %v)", err, m.last)
	}
	return m.named(err)
}

// named says of which server an error is.
func (m *member) named(err error) error { return fmt.Errorf("%s: %w", m.place(), err) }

// warn logs something of a member, now and then.
func (m *member) warn(s *session.Session, what, lock string, err error) {
	m.mu.Lock()
	now := m.odd.IsZero() || time.Since(m.odd) > oddEvery
	if now {
		m.odd = time.Now()
	}
	m.mu.Unlock() // loggers run under no mutex
	if now {
		s.Warn(what, "lock", lock, "reason", m.named(err))
	}
}

// barred: the turnstiles of the member were of no use lately.
func (m *member) barred() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.closed)
}

// bar keeps waiters from standing at the member for a while, because it refuses that. RedLocks work without it, so operators would
// not learn it but for the log.
func (q *Quorum) bar(m *member, l *mutex.Lock, err error) {
	m.mu.Lock()
	m.closed = time.Now().Add(oddEvery)
	m.mu.Unlock()
	q.s.Warn("waiters of a RedLock cannot stand in line at a server", "lock", l.Keys.Name, "reason", fmt.Errorf("%s: %w", m.place(), err))
}

// errSlow is the error of a member that was not asked.
var errSlow = errors.New("not asked, because it did not answer in time lately")

// errLate is the error of a member that has not answered yet.
var errLate = errors.New("no answer in time")

// errTaken is the reason where another one has what a hold should have.
var errTaken = errors.New("another one has the lock there, or asks for it again and again")

// errNotAccepted: a majority granted, and then did not accept the second token, or not in time.
var errNotAccepted = errors.New("no majority has accepted the fencing token")

// noMajority is the error of a request that too few members answered. The first of the errors decides what
// becomes of the request: one that time will not mend, if there is one.
func (q *Quorum) noMajority(answered int, failing ...error) error {
	rank := func(err error) int {
		switch {
		case errors.Is(err, errSlow):
			return 3
		case errors.Is(err, errLate):
			return 2
		case wire.Judge(err).Transient:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(failing, func(a, b error) int { return cmp.Compare(rank(a), rank(b)) })
	return fmt.Errorf("%d of %d servers answered, %d are needed: %w",
		answered, len(q.members), q.need, failure.Join(failing...))
}

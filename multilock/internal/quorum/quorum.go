package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Quorum is the servers of several sessions. It is the mutex.Store of their RedLocks.
type Quorum struct {
	// What follows never changes.
	s       *session.Session // by which the locks are held
	kind    mutex.Kind
	accept  *wire.Script // a higher token for a grant
	id      id
	members []*member  // by session id
	listed  []*member  // in the order in which they were given
	parts   []*quorums // by member
	need    int        // a majority
	timeout time.Duration

	seen atomic.Int64 // the highest token that was heard of or proposed
}

// id is equal for quorums that are one.
type id struct {
	members string // their ids, sorted
	timeout time.Duration
}

// keepMetadata is how long an idle lock's tokens are remembered by a quorum. The tokens of later holders are as
// high as the clocks of the servers that they reach, which may be behind.
const keepMetadata = 10 * time.Minute

// quorums are those that a session is in. It is a part of the session: whichever session ends first ends the quorum, for
// a majority of the rest would be one of other servers.
type quorums struct {
	making sync.Mutex // held while one is found or made of which this session has the first id; before any mu

	mu    sync.Mutex // guards what follows; a leaf
	ended bool
	of    map[id]*Quorum
}

type partKey struct{}

func (p *quorums) find(id id) *Quorum {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// add reports false once the session ends.
func (p *quorums) add(q *Quorum) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.of[q.id] = q
	}
	return !p.ended
}

func (p *quorums) remove(id id) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

// Shutdown ends the quorums with the first of their sessions that ends.
func (p *quorums) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	p.ended = true
	var all []*Quorum
	for _, q := range p.of {
		all = append(all, q)
	}
	p.mu.Unlock() // the end of a quorum calls remove, which takes it
	var failed []error
	for _, q := range all {
		failed = append(failed, q.s.Shutdown(ctx))
	}
	return failure.Join(failed...)
}

// Scripts are those of RedLocks.
type Scripts struct{ Lock, Accept, Release, Force, Inspect *wire.Script }

// New finds or makes the quorum of the sessions. It ends with the first of them that does. No I/O. A timeout of 0 is
// the default.
func New(sessions []*session.Session, scripts Scripts, timeout time.Duration) (*Quorum, error) {
	if err := check(sessions); err != nil {
		return nil, err
	}
	cfg := sessions[0].Config
	if timeout == 0 {
		timeout = max(cfg.Lease/100, min(100*time.Millisecond, cfg.Lease/4))
	}
	if timeout < 0 || timeout >= cfg.Lease/2 {
		return nil, fmt.Errorf("lockline: RedLock: a timeout of %v for a server is not above 0 and below half of the lease, %v", timeout, cfg.Lease)
	}
	listed, sessions := sessions, slices.Clone(sessions)
	slices.SortFunc(sessions, func(a, b *session.Session) int { return strings.Compare(a.ID(), b.ID()) })
	q := &Quorum{id: id{timeout: timeout}, accept: scripts.Accept, need: len(sessions)/2 + 1, timeout: timeout}
	for _, s := range sessions {
		part, err := session.PartOf(s, partKey{}, func(*session.Session) *quorums { return &quorums{of: map[id]*Quorum{}} })
		if err != nil {
			return nil, failure.Within("RedLock", err)
		}
		q.id.members += s.ID() + " " // sorted: the same sessions in another order are the same quorum
		q.members, q.parts = append(q.members, &member{Session: s}), append(q.parts, part)
	}
	for _, s := range listed {
		q.listed = append(q.listed, q.members[slices.Index(sessions, s)])
	}
	// Two callers with the same sessions have the same first one, so they make one quorum. A session that ends meanwhile
	// either has it already, and ends it, or refuses it below.
	q.parts[0].making.Lock()
	defer q.parts[0].making.Unlock()
	if same := q.parts[0].find(q.id); same != nil {
		return same, nil
	}
	q.kind = mutex.Kind{
		Letter: protocol.RedLock, Lock: scripts.Lock, Release: scripts.Release, Force: scripts.Force, Inspect: scripts.Inspect,
		Further: map[string]*wire.Script{"accept": scripts.Accept},
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			return protocol.NewKeys(s.Prefix, protocol.RedLock, name)
		},
		Store:   func(*session.Session) mutex.Store { return q },
		NewLock: broadcast.NewLine(q),
		Alarm:   alarm,
	}
	q.s = session.NewVirtual(cfg, q, q.leave)
	q.s.Args.Keep = protocol.Milliseconds(keepMetadata)
	for _, p := range q.parts {
		if !p.add(q) {
			_ = q.s.Shutdown(context.Background()) // nothing is held
			return nil, failure.Within("RedLock", failure.ErrClosed)
		}
	}
	if n := len(q.members); n%2 == 0 {
		q.s.Warn("a RedLock of an even number of servers stands the loss of no more of them than with one fewer",
			"servers", n, "needed", q.need)
	}
	return q, nil
}

// leave, called at the quorum's end, has the sessions forget a quorum that has ended.
func (q *Quorum) leave() {
	for _, p := range q.parts {
		p.remove(q.id)
	}
}

// Mutex names a RedLock.
func (q *Quorum) Mutex(name string, cfg mutex.Config) mutex.Mutex {
	return mutex.New(q.s, &q.kind, name, cfg)
}

func check(sessions []*session.Session) error {
	fail := func(format string, args ...any) error { return fmt.Errorf("lockline: RedLock: "+format, args...) }
	if len(sessions) == 0 {
		return fail("no sessions")
	}
	for i, s := range sessions {
		switch {
		case s == nil:
			return fail("session %d of %d is nil", i+1, len(sessions))
		case s.Redisson:
			return fail("session %d has RedissonKeys; RedLocks have keys of their own, which Redisson does not know", i+1)
		case s.Replicas.N > 0:
			return fail("session %d has WithReplicas; a RedLock's servers are independent, and a majority of them is what confirms", i+1)
		case s.Prefix != sessions[0].Prefix:
			return fail("sessions 1 and %d differ in their prefixes, %q and %q", i+1, sessions[0].Prefix, s.Prefix)
		case s.Lease != sessions[0].Lease:
			return fail("sessions 1 and %d differ in their watchdog timeouts, %v and %v", i+1, sessions[0].Lease, s.Lease)
		}
		for j, other := range sessions[:i] {
			if s.Link.Leads(other.Link) {
				return fail("sessions %d and %d are of one server; its vote would count twice", j+1, i+1)
			}
		}
	}
	return nil
}

package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/lockline/lockline/internal/wire"
)

// quorum is the transport of a session whose locks live on several independent
// servers: each request goes to all of them at once, and what a majority says is the
// answer. The algorithm is Redlock (redis.io/docs/latest/develop/clients/patterns/distributed-locks),
// with messages instead of polling, and with fencing tokens that a majority has stored.
type quorum struct {
	s       *Session
	id      quorumID
	members []*member
	need    int           // a majority
	timeout time.Duration // for the answer of one server
	seen    atomic.Int64  // the highest token that was heard of or proposed
}

// member is one of the servers.
type member struct {
	*Session
	mu      sync.Mutex // guards what follows; a leaf
	slow    bool       // did not answer in time: not asked until it has answered a PING
	probing bool
	probed  time.Time
	odd     time.Time // when it was last logged that it has a value that Lockline did not write
}

// place names the member's server for operators.
func (m *member) place() string {
	if addr := m.link.Addr(); addr != "" {
		return "server " + addr
	}
	return "the server of session " + m.id
}

// probeEvery is the time between two PINGs of a slow member, sent only while somebody locks.
const probeEvery = 500 * time.Millisecond

// keepQuorumMemory is how long an idle lock's tokens are remembered by a quorum. The
// tokens of those who come later are as high as the clocks of the servers that they reach, which may be behind.
const keepQuorumMemory = 10 * time.Minute

// NewQuorum finds or makes the session for locks on a majority of the members. It
// ends with the first of them that does. No I/O. A timeout of 0 is the default.
func NewQuorum(members []*Session, timeout time.Duration) (*Session, error) {
	if err := checkMembers(members); err != nil {
		return nil, err
	}
	cfg := members[0].SessionConfig
	if timeout == 0 {
		timeout = max(cfg.Lease/100, min(100*time.Millisecond, cfg.Lease/4))
	}
	if timeout < 0 || timeout >= cfg.Lease/2 {
		return nil, fmt.Errorf("lockline: RedLock: a timeout of %v for a server is not above 0 and below half of the lease, %v", timeout, cfg.Lease)
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b *Session) int { return strings.Compare(a.id, b.id) })

	id := quorumID{timeout: timeout}
	for _, m := range members {
		id.members += m.id + " "
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.closed {
			return nil, Within("RedLock", ErrClosed)
		}
	}
	if s := members[0].quorums[id]; s != nil { // open, as all its members are
		return s, nil
	}
	s := newSession(cfg, uuid.NewString())
	q := &quorum{s: s, id: id, need: len(members)/2 + 1, timeout: timeout}
	for _, m := range members {
		q.members = append(q.members, &member{Session: m})
		if m.quorums == nil {
			m.quorums = map[quorumID]*Session{}
		}
		m.quorums[id] = s
	}
	s.quorum, s.memory = q, itoa(keepQuorumMemory.Milliseconds())
	return s, nil
}

// quorumID is equal for quorums that are one.
type quorumID struct {
	members string // their ids, sorted
	timeout time.Duration
}

// leave has the members forget a quorum that has ended.
func (q *quorum) leave() {
	for _, m := range q.members {
		m.Session.mu.Lock()
		delete(m.quorums, q.id)
		m.Session.mu.Unlock()
	}
}

func checkMembers(members []*Session) error {
	fail := func(format string, args ...any) error { return fmt.Errorf("lockline: RedLock: "+format, args...) }
	if len(members) == 0 {
		return fail("no sessions")
	}
	for i, m := range members {
		switch {
		case m == nil:
			return fail("session %d of %d is nil", i+1, len(members))
		case m.Redisson:
			return fail("session %d has RedissonKeys; RedLocks have keys of their own, which Redisson does not know", i+1)
		case m.Replicas.N > 0:
			return fail("session %d has WithReplicas; a RedLock's servers are independent, and a majority of them is what confirms", i+1)
		case m.quorum != nil:
			return fail("session %d is a quorum itself", i+1)
		case m.Prefix != members[0].Prefix:
			return fail("sessions 1 and %d differ in their prefixes, %q and %q", i+1, members[0].Prefix, m.Prefix)
		case m.Lease != members[0].Lease:
			return fail("sessions 1 and %d differ in their watchdog timeouts, %v and %v", i+1, members[0].Lease, m.Lease)
		}
		for j, other := range members[:i] {
			if m.link.Leads(other.link) {
				return fail("sessions %d and %d are of one server; its vote would count twice", j+1, i+1)
			}
		}
	}
	return nil
}

// usable reports whether to ask the member. A slow one is asked for a PING instead, now and then.
func (q *quorum) usable(m *member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow && !m.probing && time.Since(m.probed) > probeEvery {
		m.probing = true
		q.s.work.Add(1)
		go q.probe(m)
	}
	return !m.slow
}

func (q *quorum) probe(m *member) {
	defer q.s.end()
	sent := time.Now()
	err := m.link.Ping(q.s.ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = err != nil && wire.Judge(err).Transient || time.Since(sent) > q.timeout
	m.probing, m.probed = false, time.Now()
}

func (m *member) suspect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.slow {
		m.slow, m.probed = true, time.Now()
	}
}

// ahead is by how much a token may be above the servers' clocks for proposals to follow it. So whatever a message says, the tokens that are
// stored stay far below what the servers refuse (redlock_lock.lua: a day), also where their clocks differ by hours.
const ahead = 12 * time.Hour

// now estimates the clock of the server that is ahead, in microseconds; 0 while none is known. One that is far ahead of the
// others does not carry the tokens along.
func (q *quorum) now() int64 {
	var room [8]int64
	clocks, local := room[:0], time.Now()
	for _, m := range q.members {
		if t := m.clock.Now(local); t != 0 {
			clocks = append(clocks, t)
		}
	}
	if len(clocks) == 0 {
		return 0
	}
	slices.Sort(clocks)
	return min(clocks[len(clocks)-1], clocks[(len(clocks)-1)/2]+(ahead/2).Microseconds())
}

// credible: the token is not far above the clocks, as no token of ours is.
func (q *quorum) credible(token int64) bool { return token <= q.now()+ahead.Microseconds() }

// oddEvery is the time between two warnings of a member that has values which Lockline did not write.
const oddEvery = time.Minute

// dissent puts the member's name before the error of a value that Lockline did not write. The others may be a majority without that
// member, so operators would not learn it but for the log.
func (q *quorum) dissent(m *member, l *lock, err error) error {
	err = fmt.Errorf("%s: %w", m.place(), err)
	m.mu.Lock()
	tell := m.odd.IsZero() || time.Since(m.odd) > oddEvery
	if tell {
		m.odd = time.Now()
	}
	m.mu.Unlock()
	if tell {
		q.s.warn("a server of a RedLock has no vote", "lock", l.keys.Name, "reason", err)
	}
	return err
}

// saw notes a token, for all later proposals to be higher.
func (q *quorum) saw(token int64) {
	for {
		seen := q.seen.Load()
		if token <= seen || !q.credible(token) || q.seen.CompareAndSwap(seen, token) {
			return
		}
	}
}

// propose makes the first token of a new block: the time of the server that is ahead
// of the others, or more than every token heard of to be used. No other proposal of this session is the same.
func (q *quorum) propose() int64 {
	now := max(1, q.now())
	for {
		seen, token := q.seen.Load(), now
		if seen >= now && q.credible(seen) { // else the clocks were set back
			token = seen + 1
		}
		if q.seen.CompareAndSwap(seen, token) {
			return token
		}
	}
}

// spread is by how much votes are kept apart by chance, after so many in a row were lost.
func spread(took time.Duration, losses int) time.Duration {
	return rand.N(min(max(took, 200*time.Microsecond)<<min(losses, 8), 100*time.Millisecond))
}

// errSlow is a member's error that was not asked.
var errSlow = errors.New("not asked, because it did not answer in time lately")

// errNotAccepted: a majority granted, and then did not accept the second token, or not in time.
var errNotAccepted = errors.New("no majority has accepted the fencing token")

// errLate is a member's error that has not answered yet.
var errLate = errors.New("no answer in time")

// noMajority is the error of a request that too few members answered.
func (q *quorum) noMajority(answered int, err error) error {
	return fmt.Errorf("%d of %d servers answered, %d are needed: %w", answered, len(q.members), q.need, err)
}

package engine

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// lock is what this process knows of one lock while anybody here holds it,
// waits for it, or gives it back.
type lock struct {
	s    *Session
	keys *Keys
	p    *Protocol
	refs int // guarded by Session.mu

	// mu guards all below and the changing fields of this lock's streaks, holds and groups. Session.queue
	// and Session.mu may be taken under it, in this order; the locks of Watchdog and Hub are leaves.
	mu     sync.Mutex
	root   slot
	streak *streak   // the live one
	seen   *sighting // what was last learned of another holder than streak; nil if nobody waited
	// sub belongs to whoever is inside root and hands down to the next, so
	// that a hot lock stays subscribed. So does due: how many more times others may
	// have the lock first, after a streak of ours that was ended for their sake.
	sub *listener
	due int

	line *line // who waits in Redis's queue; nil for a kind that has none
}

// Protocol says which scripts make a kind of lock.
type Protocol struct {
	Kind                          string // the key segment, and the lock's kind in events
	Lock, Release, Force, Inspect *wire.Script
	Heartbeat                     *wire.Script // the kind queues in Redis, if there is one
	LockSeveral, ReleaseSeveral   *wire.Script // nil where locks are taken one by one
	Accept                        *wire.Script // of a quorum: a higher token for a grant
}

func (p *Protocol) queues() bool { return p.Heartbeat != nil }

// enter finds the lock, for an acquisition. Every enter has its leave.
func (s *Session) enter(k *Keys, p *Protocol) (*lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.work.Add(1)
	l := s.locks[k.lock()]
	if l == nil {
		l = &lock{s: s, keys: k, p: p}
		if p.queues() {
			l.line = &line{}
		}
		s.locks[k.lock()] = l
	}
	l.refs++
	return l, nil
}

func (l *lock) leave() {
	l.drop()
	l.s.work.Done()
}

// keep and drop count who needs the lock beside acquisitions.
func (l *lock) keep() {
	l.s.mu.Lock()
	l.refs++
	l.s.mu.Unlock()
}

func (l *lock) drop() {
	s := l.s
	s.mu.Lock()
	l.refs--
	idle := l.refs == 0
	if idle {
		delete(s.locks, l.keys.lock())
	}
	s.mu.Unlock()
	if idle && l.sub != nil { // nobody else has l any more
		l.sub.Close()
	}
}

// begin reports false once the session is closed; else the caller's background
// work is waited for by Shutdown until end.
func (s *Session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

func (s *Session) end() { s.work.Done() }

// keepMemory is how long an idle lock's tokens are remembered.
const keepMemory = time.Minute

// grant names what Redis granted or may have granted, as script arguments.
type grant struct {
	owner any   // string: the attempt's owner field
	token any   // string: '' where it is not known, or any that the attempt was granted is meant
	used  any   // string or int64: the last token used of the block; nil: none was; '': unknown, none is given back
	late  int64 // Redis time until which a copy of the lock request may still arrive; 0: none is under way
	// ballot is the vote that brought it, or did not; nil for a single server.
	ballot *ballot
}

// giveBack ends a grant.
func (l *lock) giveBack(ctx context.Context, g grant, most int) wire.Outcome {
	o := l.s.call(ctx, l.p.Release, &release{l: l, grant: g}, most, nil)
	if o.Err == nil {
		l.handedOn(o.Reply, o.Sent)
	}
	return o
}

// handedOn learns whom a release that was sent at sent made the owner: 'R OWNER TOKEN LEASE' or 'L OWNER TOKEN LEASE'.
func (l *lock) handedOn(reply string, sent time.Time) {
	if !l.p.queues() {
		return
	}
	words := strings.Fields(reply)
	if len(words) == 4 && l.s.owns(words[1]) {
		l.s.tell(words[1], award{token: number(words[2]), lease: time.Duration(number(words[3])) * time.Millisecond, since: sent})
		return
	}
	l.mu.Lock()
	l.line.others = len(words) == 4
	l.mu.Unlock()
}

// release is the request that ends a grant.
type release struct {
	l *lock
	grant
	more []release // of further locks
}

func (r *release) Request(time.Time) wire.Request {
	argv := []any{r.owner, r.token, r.l.keys.channel, r.l.s.memory, r.mayArrive(), r.lastUsed()}
	if r.more == nil {
		return r.l.keys.request(r.l.p.Release, argv...)
	}
	more := make([]*Keys, len(r.more))
	for i, m := range r.more {
		more[i] = m.l.keys
		argv = append(argv, m.owner, m.token, m.mayArrive(), m.lastUsed())
	}
	return r.l.keys.and(more).request(r.l.p.ReleaseSeveral, argv...)
}

func (g *grant) mayArrive() any {
	if g.late == 0 {
		return "0"
	}
	return g.late
}

func (g *grant) lastUsed() any {
	if g.used == nil {
		return "0"
	}
	return g.used
}

// settle keeps giving back, in the background, what a failed request left
// behind, until it is done or the lease has ended it; once in any case, as somebody may have taken the lease's expiry away. gone, unless nil, is closed after the first try. The caller must be
// counted in Session.work.
func (l *lock) settle(g grant, until time.Time, gone chan<- struct{}) {
	l.s.work.Add(1)
	go func() {
		defer l.s.end()
		for try := 0; try == 0 || time.Now().Before(until); try++ {
			o := l.giveBack(l.s.ctx, g, 1)
			if gone != nil {
				close(gone)
				gone = nil
			}
			if o.Err == nil || !wire.Judge(o.Err).Unsettled() || !wire.Pause(l.s.ctx, wire.Backoff(try, 50*time.Millisecond, 2*time.Second)) {
				return
			}
		}
	}()
}

func (l *lock) fail(err error) error { return &nameError{name: l.keys.Name, err: err} }

// pass lets the next one compete.
func (l *lock) pass() {
	l.mu.Lock()
	l.root.leave()
	l.mu.Unlock()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// slotOf is where the stay of something nested under outer counts: outer's slot,
// or, where outer is over, what outer itself was nested in. mu held.
func (l *lock) slotOf(outer *hold) *slot {
	for ; outer != nil; outer = outer.outer {
		if state(outer.state.Load()) == held {
			return &outer.slot
		}
	}
	return &l.root
}

// release frees the lock in Redis and then lets the next goroutine of this
// session compete for it.
func (l *lock) release(ctx context.Context, st *streak, was reign) error {
	return l.released(ctx, st, was, l.giveBack(ctx, st.final(), wire.Tries))
}

// released is the end of a release, whose outcome is o.
func (l *lock) released(ctx context.Context, st *streak, was reign, o wire.Outcome) error {
	var err error
	switch {
	case o.Err != nil:
		err = l.keys.failed(o.Err)
		l.settle(st.final(), st.deadline(), nil)
	case !strings.HasPrefix(o.Reply, "R") && o.Unanswered != nil:
		// An unanswered copy may have released it, and somebody else lost it since.
		err = l.keys.failed(o.Unanswered)
	case !strings.HasPrefix(o.Reply, "R"):
		err = &nameError{name: l.keys.Name, err: ErrLost}
	}
	if l.p.queues() {
		l.mu.Lock()
		l.unlocked(true)
		l.mu.Unlock()
	} else {
		_, heard, _ := strings.Cut(o.Reply, " ")
		n, _ := strconv.Atoi(heard)
		l.due = 0
		if st.fence != st.firstFence() || st.contested && n > crowd {
			l.due = n
		}
		if l.due > 0 { // also for who comes back in a moment
			l.keep()
			time.AfterFunc(restMemory, l.drop)
		}
		l.pass()
	}
	l.drop()
	was.ended(ctx, l, err)
	return err
}

package quorum

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/queue"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// The turnstile of a RedLock is a fair lock on one of the members: its holder votes. It only keeps voters apart, so
// it may fail or be held twice, and nothing of it is an error of the RedLock. All clients that list the servers in the
// same order stand at the same one: the first that answers, counted from one that the lock's name decides.

// turnKind has keys of its own, so that users' fair locks of the same name are other locks.
var turnKind = queue.NewFair(protocol.Turnstile)

// turnLease is the lease and the liveness time of turnstiles: for how long one that is killed or frozen holds others up.
const turnLease = 2 * time.Second

// attendant is the part of a member's session that stands in turnstiles.
type attendant struct{}

func newAttendant(s *session.Session) *session.Session {
	cfg := s.Config
	cfg.Lease, cfg.Liveness = turnLease, turnLease
	cfg.Observer, cfg.Logger = nil, slog.New(slog.DiscardHandler)
	return session.NewBeside(s, cfg)
}

// turn is a place in a turnstile. It is a broadcast.Turn.
type turn struct {
	q      *Quorum
	l      *mutex.Lock
	ctx    context.Context // ends when the place is given up
	cancel context.CancelFunc
	come   chan struct{} // closed once alone or void is set
	alone  atomic.Bool   // no other session stood there
	void   atomic.Bool   // there is no turnstile

	mu   sync.Mutex // guards what follows; a leaf
	at   *member    // where it stands
	skip func()     // has it stand elsewhere
}

// Stand has the quorum be a broadcast.Turnstile.
func (q *Quorum) Stand(l *mutex.Lock) broadcast.Turn {
	t := &turn{q: q, l: l, come: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	q.s.Go(t.run)
	return t
}

func (t *turn) Come() <-chan struct{} { return t.come }
func (t *turn) Behind() bool          { return !t.alone.Load() }
func (t *turn) Void() bool            { return t.void.Load() }
func (t *turn) Leave()                { t.cancel() }

// run stands at the first member that has a turnstile, until its turn is over.
func (t *turn) run() {
	for _, m := range t.q.line(t.l.Keys.Name) {
		if !t.q.usable(m) || m.barred() {
			continue
		}
		hold := t.stand(m)
		if t.ctx.Err() == nil && hold == nil {
			continue
		}
		close(t.come)
		<-t.ctx.Done()
		if hold != nil {
			_ = hold.Unlock(context.Background()) // in this goroutine, since Leave does not block
		}
		return
	}
	t.alone.Store(true)
	t.void.Store(true)
	close(t.come)
}

// stand blocks until the turn has come at a member; nil: it has not.
func (t *turn) stand(m *member) *mutex.Entry {
	s, err := session.PartOf(m.Session, attendant{}, newAttendant)
	if err != nil {
		return nil
	}
	ctx, skip := context.WithCancel(t.ctx)
	defer skip()
	t.mu.Lock()
	t.at, t.skip = m, skip // from now on Look may end this attempt
	t.mu.Unlock()
	lock := mutex.New(s, turnKind, t.l.Keys.Name, mutex.Config{})
	e, err := lock.Admitted(ctx, mutex.Config{Impatient: true}, false)
	if err != nil {
		if ctx.Err() == nil && !wire.Judge(err).Transient {
			t.q.bar(m, t.l, err)
		}
		return nil
	}
	t.alone.Store(!queue.Others(e.Lock()))
	return e
}

// silence is how old a member's last answer may be: longer than the time between two heartbeats.
const silence = turnLease / 2

// Look asks the member for the holder of the lock, and so for a sign of life.
func (t *turn) Look(who bool) {
	t.mu.Lock()
	m, skip := t.at, t.skip
	t.mu.Unlock()
	switch {
	case m == nil: // run has not come to any yet
	case !t.q.usable(m):
		skip() // run goes on to the next member
	case who || time.Since(m.Clock.Last()) > silence:
		t.q.s.Go(func() {
			t.ask(m)
			if !t.q.usable(m) {
				skip()
			}
		})
	}
}

// ask notes the holder of the lock at a member, or that this does not answer in time.
func (t *turn) ask(m *member) {
	answer := make(chan wire.Outcome, 1) // has room: the answer may come when no goroutine waits for it
	t.q.s.Go(func() {
		answer <- m.Link.Call(t.q.s.Ctx, t.l.Kind.Inspect, &protocol.Same{Script: t.l.Kind.Inspect, Keys: t.l.Keys}, 1, nil)
	})
	late := time.NewTimer(t.q.timeout)
	defer late.Stop()
	select {
	case o := <-answer:
		st, err := protocol.DecodeState(t.l.Keys.Name, o.Reply)
		if o.Err != nil && wire.Judge(o.Err).Transient {
			m.suspect(o.Err)
		} else if o.Err == nil && err == nil {
			var saw protocol.Answer // no holder, but it is the turn of another
			if st.Held {
				saw = protocol.Answer{Holder: st.Owner, About: fmt.Sprintf("%d@%s %s", st.PID, st.Host, st.Label), Left: st.Remaining}
			}
			t.l.Mu.Lock()
			defer t.l.Mu.Unlock()
			t.l.Saw(saw)
		}
	case <-late.C:
		m.suspect(nil)
	}
}

// line is the members in the order in which a turnstile of that name is looked for.
func (q *Quorum) line(name string) []*member {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	first := int(h.Sum32() % uint32(len(q.listed)))
	return append(q.listed[first:len(q.listed):len(q.listed)], q.listed[:first]...)
}

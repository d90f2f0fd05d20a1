package redisson

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// A lock is the state that a session keeps for one lock in Redis. The goroutines that wait for the lock take
// turns in memory. Of these goroutines, only the goroutine with the turn sends requests (acquire.go). The
// next goroutine gets the turn when that goroutine gives up, or when its grant has ended and no release is in
// flight any more (settle). A try (a TryLock, or a Lock with WaitAtMost(0)) needs no turn. It sends its
// request only if no other goroutine of the session waits for the lock, holds it or is releasing it.
//
// After a refusal, the session subscribes to Redisson's channel of the lock, and the goroutine with the turn
// sends another request after each message. This goroutine also sends a request when the subscription is
// confirmed. So it notices a release that was published before the confirmation.
type lock struct {
	s   *session.Session
	n   *names
	all *locks

	uses int // number of users of this state, for example acquisitions and grants; guarded by locks.mu

	mu        sync.Mutex        // guards the fields below, and the grants and holds of the lock
	waiters   []*waiter         // first come, first served; only the first waiter may have the turn
	grant     *grant            // nil means the session does not hold the lock
	releases  int               // number of releases in flight
	released  chan struct{}     // closed when the next release has ended; nil: no goroutine waits
	rest      time.Time         // other clients go first until this time
	crowded   bool              // many clients were notified of the last release, so no message ends the rest
	refusedAt time.Time         // when the last refused request of the first waiter was sent; zero: none
	seen      *failure.Sighting // the last known holder; nil means none is known
	suspicion *time.Timer       // runs warnOfItself; nil means that the timer is not set

	hub  *pubsub.Hub          // hub of news; nil before the first refusal
	news *pubsub.Subscription // subscription to the lock's channel; nil before the first refusal
	own  *pubsub.Subscription // subscription to the session's channel; nil if not needed, see subscribe
}

// A waiter is the entry of an acquisition in lock.waiters, the queue of the goroutines of the session that
// want the lock. lock.mu guards the fields.
type waiter struct {
	a    *acquisition
	turn bool          // the goroutine may send requests
	next chan struct{} // closed when the goroutine gets the turn; nil if it had the turn at once
}

// settle gives the turn to the first waiter, unless the session holds the lock or is releasing it. No other
// function gives the turn. So every change that lets the first waiter have the turn must be followed by a
// call of settle. The caller must hold l.mu.
func (l *lock) settle() {
	if len(l.waiters) == 0 || l.grant != nil || l.releases > 0 || l.waiters[0].turn {
		return
	}
	first := l.waiters[0]
	first.turn = true
	if first.next != nil {
		close(first.next)
	}
}

// join adds a goroutine to the waiters, as the last one. The caller must hold l.mu.
func (l *lock) join(w *waiter) {
	l.waiters = append(l.waiters, w)
	l.settle()
	if !w.turn {
		w.next = make(chan struct{})
		l.suspect()
	}
}

// leave removes a goroutine from the waiters, if the goroutine is one of them. The caller must hold l.mu.
func (l *lock) leave(w *waiter) {
	i := slices.Index(l.waiters, w)
	if i < 0 {
		return
	}
	if w.turn {
		if !l.refusedAt.IsZero() && l.seen != nil {
			l.seen.At = time.Now() // as far as the session knows, this holder still has the lock
		}
		l.refusedAt = time.Time{}
	}
	if i == 0 && len(l.waiters) > 1 { // slices.Delete would move the other waiters, which may be very many
		l.waiters[0] = nil
		l.waiters = l.waiters[1:]
	} else {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	l.settle()
}

// restTime is the longest time for which a session lets other clients go first after a release. Within one
// data center, the message of the release and the requests of the other clients take less time. If a session
// did not rest, its next request would be sent before the message of its release reaches other clients. So a
// session whose goroutines come one after another would get the lock each time. If few clients want the lock,
// the rest ends with the next release by another client.
const restTime = time.Millisecond

// fewClients is the largest number of notified clients that count as few. If more clients were notified of a
// session's release, the session rests for all of restTime, even if none of its goroutines waits yet.
// Messages do not end this rest. Otherwise all sessions would send a request after each message, and most
// requests would be refused.
const fewClients = 2

// memory is the time for which a session keeps the state of a lock after a release of which other clients
// were notified. So a goroutine that soon wants the lock again finds the subscription, and the time until
// which the session rests.
const memory = 10 * time.Millisecond

// yield lets other clients go first after a release of this session. notified is the number of clients that
// were notified of the release. The caller must hold l.mu.
func (l *lock) yield(notified int64) {
	others := notified
	if l.news != nil {
		others-- // notified includes this session
	}
	if others <= 0 {
		return
	}
	l.crowded = notified > fewClients
	if len(l.waiters) > 0 || l.crowded {
		l.rest = time.Now().Add(restTime)
	}
	l.retain()
	time.AfterFunc(memory, l.drop)
}

// subscribe subscribes to the lock's channel in the mode that the refusal r reports, classic or sharded. It
// does not wait for the confirmation.
//
// The connection of the subscription may lead to a server that does not have the lock, for example because an
// endpoint was moved. To notice this, the session also subscribes to its own channel. Each refusal reports
// whether the lock's server has a subscriber to this channel. If it has none, the hub replaces the
// connection. If the client may have several servers, the session does not subscribe to its own channel,
// because the connection of that subscription may lead to any of the servers. The caller must hold l.mu.
func (l *lock) subscribe(r *refusal) {
	s, hub := l.s, l.s.Hub
	if r.Sharded {
		hub = s.ShardedHub
	}
	if l.hub != hub { // first refusal, or the server now publishes in the other mode
		l.close()
		l.hub, l.news = hub, hub.Subscribe(l.n.channel.(string))
		if s.Link.Single() {
			l.own = s.Hub.Subscribe(s.Channel())
		}
	}
	if r.NoSubscriber && l.own != nil {
		l.own.Unheard(r.sent)
	}
}

// close ends the subscriptions. The caller must hold l.mu.
func (l *lock) close() {
	if l.news != nil {
		l.news.Close()
	}
	if l.own != nil {
		l.own.Close()
	}
	l.hub, l.news, l.own = nil, nil, nil
}

// nextRelease returns a channel that is closed when the next release has ended. The caller must hold l.mu.
func (l *lock) nextRelease() <-chan struct{} {
	if l.released == nil {
		l.released = make(chan struct{})
	}
	return l.released
}

// endRelease records that a release has ended. The caller must hold l.mu.
func (l *lock) endRelease() {
	l.releases--
	if l.released != nil {
		close(l.released)
		l.released = nil
	}
	l.settle()
}

// suspect starts the timer of warnOfItself, unless it is already running. One timer serves all waits. The
// caller must hold l.mu.
func (l *lock) suspect() {
	if l.suspicion == nil {
		l.suspicion = time.AfterFunc(engine.LongWait, l.warnOfItself)
	}
}

// warnOfItself logs, once for each grant, that goroutines have waited for engine.LongWait for a holder of
// their own session.
func (l *lock) warnOfItself() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspicion = nil
	if len(l.waiters) == 0 {
		return
	}
	l.suspect()
	g := l.grant
	if g == nil || g.warned || time.Since(l.waiters[0].a.begun) < engine.LongWait ||
		l.s.Age()-g.holds[0].began < engine.LongWait || !l.s.Begin() {
		return
	}
	g.warned = true
	go func() { // the logger must not run with a mutex held
		defer l.s.End()
		l.s.Warn(engine.WaitsForItself, "lock", l.n.keys.Name)
	}()
}

// holder returns the holder for which an acquisition waits, or nil if no holder is known. The caller must
// hold l.mu.
func (l *lock) holder(a *acquisition) *failure.LockedError {
	if g := l.grant; g != nil {
		return g.locked()
	}
	var refused *time.Time
	if !l.refusedAt.IsZero() {
		refused = &l.refusedAt
	}
	return l.seen.Locked(l.n.keys.Name, a.begun, refused)
}

// observe notifies the observer of an event of the lock.
func (l *lock) observe(ctx context.Context, e session.Event) {
	l.s.Observe(ctx, protocol.Redisson, l.n.keys.Name, e)
}

// fail returns err with the name of the lock.
func (l *lock) fail(err error) error { return failure.Named(l.n.keys.Name, err) }

// failed returns the error of a request with the name of the lock, and with a hint at its cause.
func (l *lock) failed(err error) error { return l.n.keys.Failed("", err) }

// locksKey is the key by which session.PartOf finds the locks of a session.
type locksKey struct{}

// locks has the locks of a session.
type locks struct {
	s *session.Session

	mu  sync.Mutex // guards all and lock.uses; no other mutex is locked while mu is held
	all map[string]*lock
}

func newLocks(s *session.Session) *locks { return &locks{s: s, all: map[string]*lock{}} }

// use finds or makes a lock, and counts one more use of it. The lock is kept until drop has ended all uses.
func (ls *locks) use(n *names) *lock {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[n.keys.LockKey()]
	if l == nil {
		l = &lock{s: ls.s, n: n, all: ls}
		ls.all[n.keys.LockKey()] = l
	}
	l.uses++
	return l
}

// retain counts one more use of the lock, for a caller that already uses it.
func (l *lock) retain() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.uses++
}

// drop ends one use of the lock. After the last use, it removes the lock. The caller must not hold l.mu.
func (l *lock) drop() {
	l.all.mu.Lock()
	l.uses--
	key := l.n.keys.LockKey()
	unused := l.uses == 0 && l.all.all[key] == l // all may have a newer lock for this key
	if unused {
		delete(l.all.all, key)
	}
	l.all.mu.Unlock()
	if unused {
		l.mu.Lock()
		l.close()
		if l.suspicion != nil {
			l.suspicion.Stop()
		}
		l.mu.Unlock()
	}
}

// Shutdown releases all locks that the session holds. It blocks until Redis has replied to all releases.
// After the end of ctx, it sends no more requests.
func (ls *locks) Shutdown(ctx context.Context) error {
	ls.mu.Lock()
	var all []*lock
	for _, l := range ls.all {
		l.uses++ // keeps the lock, because the end of its grant drops a use
		all = append(all, l)
	}
	ls.mu.Unlock()
	var errs []error
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	limit := make(chan struct{}, 100) // limits the number of requests in flight
	for _, l := range all {
		l.mu.Lock()
		g := l.grant
		l.mu.Unlock()
		if g != nil && g.end(handle.Closed, nil) { // end returns false if the grant has ended meanwhile
			r := g.newRelease()
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				if ctx.Err() != nil {
					r.drop()
					return // Session.Shutdown returns the error of ctx
				}
				if err := r.send(ctx); err != nil && !isLost(err) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		l.drop()
	}
	wg.Wait()
	return failure.Join(errs...)
}

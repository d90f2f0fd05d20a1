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

// A lock is the state of one name in a session. The goroutines that wait for the lock take turns in memory.
// Only the goroutine with the turn sends requests (acquire.go). It has the turn until it gives up, or until
// the release of its grant has ended. A try has no turn, and sends its request only if no goroutine waits.
// settle decides which goroutine is next.
//
// After a refusal, the session subscribes to Redisson's channel of the lock, and the goroutine with the turn
// sends another request after each message. No wake-up is lost, because a confirmed subscription counts as a
// message.
type lock struct {
	s   *session.Session
	n   *names
	all *locks

	uses int // number of acquisitions, grants and releases that use the lock; guarded by locks.mu

	mu        sync.Mutex        // guards the following fields, and grants and holds
	waiters   []*waiter         // first come, first served; only the first waiter may have the turn
	grant     *grant            // nil means the session does not hold the lock
	releases  int               // number of releases in flight
	released  chan struct{}     // closed when the next release has ended; nil means no goroutine waits
	rest      time.Time         // other clients go first until this time
	crowded   bool              // many clients were notified of the last release, so rest is not cut short
	refusedAt time.Time         // when the goroutine with the turn was last refused; zero if not
	seen      *failure.Sighting // the last known holder; nil means none is known
	suspicion *time.Timer       // runs warnOfItself; nil means no goroutine has waited

	hub  *pubsub.Hub          // hub of news; nil before the first refusal
	news *pubsub.Subscription // subscription to the lock's channel; nil before the first refusal
	own  *pubsub.Subscription // subscription to the session's channel, see subscribe; may be nil
}

// A waiter is an acquisition's place among the goroutines of its session. lock.mu guards it.
type waiter struct {
	a    *acquisition
	turn bool          // the goroutine may send requests
	next chan struct{} // closed when the goroutine gets the turn; nil if it had the turn at once
}

// settle gives the turn to the first waiter, unless the session holds the lock or is releasing it. It is
// called after every event, and only settle gives the turn. The caller must hold l.mu.
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

// join puts a goroutine behind the waiters. The caller must hold l.mu.
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
	if i == 0 && len(l.waiters) > 1 { // slices.Delete would move the others, which may be very many
		l.waiters[0] = nil
		l.waiters = l.waiters[1:]
	} else {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	l.settle()
}

// restTime is the longest head start that a session gives, after its turn, to the clients that were notified
// of its release. It is longer than their requests take in one data center. Without a head start, a session
// whose goroutines come one after another would get the lock each time. The reason is that its next request
// is sent before the message of its release has reached other clients. If few clients want the lock, the next
// release of one of them ends the head start.
const restTime = time.Millisecond

// fewClients is the largest number of notified clients that count as few. If there are more, a session lets
// the others go first for all of restTime, even if none of its goroutines waits. If all sessions sent their
// requests after each message, most requests would be refused.
const fewClients = 2

// memory is the time for which a session keeps a lock that other clients want, with its subscription,
// although none of its goroutines uses the lock.
const memory = 10 * time.Millisecond

// yield lets other clients go first after a release. notified is the number of clients that were notified of
// the release. The caller must hold l.mu.
func (l *lock) yield(notified int64) {
	others := notified
	if l.news != nil {
		others-- // notified counts this session, too
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

// subscribe subscribes to the lock's channel in the mode that a refusal contains, classic or sharded. It does
// not wait for the confirmation.
//
// If an endpoint was moved, the connection may lead to a former server. To notice that, the session also
// subscribes to its own channel, because each refusal reports whether the lock's server has a subscriber to
// this channel. If several servers could have this subscription, the session does not do so. The caller must
// hold l.mu.
func (l *lock) subscribe(r *refusal) {
	s, hub := l.s, l.s.Hub
	if r.Sharded {
		hub = s.ShardedHub
	}
	if l.hub != hub { // after the first refusal, or after a change of the server or of the rights
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

// endRelease counts a release that has ended. The caller must hold l.mu.
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

// warnOfItself logs, once for each grant, that goroutines have waited for a long time for a holder of their
// own session.
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
	go func() { // loggers run under no mutex
		defer l.s.End()
		l.s.Warn(engine.WaitsForItself, "lock", l.n.keys.Name)
	}()
}

// holder returns the holder for which an acquisition waits. It returns nil if that holder is not known. The
// caller must hold l.mu.
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

// observe notifies the observer.
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

	mu  sync.Mutex // guards all, and the uses of locks; no other mutex is locked while it is held
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
	unused := l.uses == 0 && l.all.all[key] == l // the Unlock of a lost hold may use a lock that was removed
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

// Shutdown releases all held locks. It blocks until Redis has replied, or until ctx has ended.
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
	limit := make(chan struct{}, 100) // limits the requests in flight, most of which share pipelines
	for _, l := range all {
		l.mu.Lock()
		g := l.grant
		l.mu.Unlock()
		if g != nil && g.end(handle.Closed, nil) { // otherwise the grant was lost or unlocked meanwhile
			r := g.newRelease()
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				if ctx.Err() != nil {
					r.drop()
					return // the session returns an error
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

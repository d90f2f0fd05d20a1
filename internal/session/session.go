// Package session has the Session, which is the identity of a process that holds locks. All locks of a
// session share its client, its subscriptions and its watchdog. The package does not depend on the kinds of
// locks.
//
// A package that keeps state for a session keeps it in a Part. Each object with a lease is a Lessee. The
// watchdog renews the lease by the methods of keeper.
//
// A session is open at first. When Shutdown begins, waits end, no work can begin, and all locks are released.
// Shutdown waits for all work that has begun. If the context of Shutdown ends first, each lock that was not
// released is free when its lease ends. These rules serve the invariant "no trace" of docs/design.md.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/watchdog"
)

// Config has the options of a session.
type Config struct {
	Prefix        string
	Lease         time.Duration // the watchdog timeout, which is the lease of renewed locks
	WaiterTimeout time.Duration // the waiter timeout
	Handover      time.Duration // longest time for which a grant is passed on in memory (WithHandover)
	Linger        time.Duration // longest time for which an unused grant is kept (WithLinger)
	Label         string
	Logger        *slog.Logger
	Classic       bool      // no sharded pub/sub, even if the server has it
	Only          EventKind // the only kind of event that is observed; 0 means all kinds

	// Observer is called without any mutex held. The operation to which the event belongs waits until
	// Observer returns.
	Observer func(ctx context.Context, e Event)
}

// Args has the script arguments that are the same for all requests of a session. Each argument has the type
// any, so that it is converted only once.
type Args struct {
	HolderInfo     any // string, the holder info without a note
	Lease          any // string, the watchdog timeout in milliseconds
	WaiterTimeout  any // string, the waiter timeout in milliseconds
	LingerCooldown any // string, time in microseconds, see lock/acquire.lua
	Retention      any // string, time in milliseconds for which Redis keeps the hash of a free lock
	Channels       any // string, the prefix of the names of the sessions' channels
}

// Info returns the holder info of an attempt, which is HolderInfo with the note of the call. If the call has
// no note, Info returns HolderInfo.
func (a *Args) Info(note string) any {
	if note == "" {
		return a.HolderInfo // converted to any already
	}
	return protocol.WithNote(a.HolderInfo.(string), note)
}

// Session is the identity of a process or of a component of a process, with everything that its locks share.
// It is safe for concurrent use.
type Session struct {
	// The fields before attempts never change.
	Config
	Args Args
	Link *wire.Link
	Hub  *pubsub.Hub

	// ShardedHub is for sharded channels. It is nil if the session uses no sharded channels.
	ShardedHub *pubsub.Hub

	Watchdog *watchdog.Watchdog
	Clock    *wire.Clock     // estimate of the clock of Redis
	Ctx      context.Context // canceled at the end of Shutdown, to end background work
	id       string
	onEnd    func()
	born     time.Time
	cancel   context.CancelFunc // cancels Ctx
	closing  chan struct{}      // closed when Shutdown begins
	over     chan struct{}      // closed at the end of Shutdown

	attempts atomic.Int64
	// Shutdown waits for work. work is only incremented while mu is held and the session is open, or by a
	// caller that is counted already.
	work sync.WaitGroup

	mu     sync.Mutex // guards the fields below; no other mutex is locked while mu is held
	closed bool
	parts  []part
	failed []error // further errors that Shutdown returns
}

// Outer is the Session of users. Type rlock.Session is defined from it. Users cannot reach its field.
type Outer struct{ inner *Session }

// Outer returns the Session of users.
func (s *Session) Outer() *Outer { return &Outer{s} }

// Session returns the Session behind o. It returns nil for a nil Outer.
func (o *Outer) Session() *Session {
	if o == nil {
		return nil
	}
	return o.inner
}

// A Part has the state that a package keeps for a session.
type Part interface {
	// Shutdown releases all that the part holds. The session calls it at most once, when no work can begin
	// any more. Shutdown blocks until its requests have ended. After the end of ctx, it begins no further
	// requests.
	Shutdown(ctx context.Context) error
}

type part struct {
	key any
	Part
}

// New returns a session that uses a client. It sends no request.
func New(c wire.Client, cfg Config) (*Session, error) {
	if err := wire.Check(c); err != nil {
		return nil, fmt.Errorf("lockline: NewSession: %w", err)
	}
	if err := protocol.CheckPrefix(cfg.Prefix); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		option   string
		d, least time.Duration
		off      bool // 0 or less switches the option off
	}{
		{"WithWatchdogTimeout", cfg.Lease, protocol.MinLease, false},
		{"WithWaiterTimeout", cfg.WaiterTimeout, protocol.MinLease, false},
		{"WithHandover", cfg.Handover, protocol.MinHandover, true},
		{"WithLinger", cfg.Linger, protocol.MinTime, true},
	} {
		if c.off && c.d <= 0 {
			continue
		}
		if err := protocol.CheckDuration(c.option, c.d, c.least, protocol.MaxLease); err != nil {
			return nil, err
		}
	}
	if err := protocol.CheckText("WithLabel", cfg.Label); err != nil {
		return nil, err
	}
	cluster, several := c.(pubsub.ClusterClient)
	if c, ok := c.(*redis.ClusterClient); ok && c.Options().ClusterSlots != nil {
		several = false // the servers are no Cluster, for example with NewFailoverClusterClient
	}
	s := newSession(cfg, NewID())
	s.Link = wire.NewLink(c, wire.Options{Logger: cfg.Logger, Context: s.Ctx, Closing: s.closing})
	hubOptions := pubsub.Options{Logger: cfg.Logger, Server: s.Link.Addr(), OnReconnect: s.Link.Reconnected}
	if s.Link.Single() && hubOptions.Server == "" {
		hubOptions.Server = "the master that the Sentinels name"
	}
	if several {
		s.Hub = pubsub.NewClusterHub(cluster, hubOptions)
	} else {
		s.Hub = pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return c.Subscribe(ctx) }, hubOptions)
	}
	if several && !cfg.Classic {
		s.ShardedHub = pubsub.NewShardedHub(pubsub.Masters(cluster), hubOptions)
	}
	ignoreOutages := s.Link.OnOutage(s.Watchdog.Confirm)
	s.onEnd = func() {
		ignoreOutages()
		s.Hub.Close()
		if s.ShardedHub != nil {
			s.ShardedHub.Close()
		}
	}
	return s, nil
}

// NewBeside returns a session with this id that uses the client, the subscriptions and the clock of s. It has
// its own options and leases. It must end before s.
func NewBeside(s *Session, cfg Config, id string) *Session {
	b := newSession(cfg, id)
	b.Link, b.Hub, b.ShardedHub, b.Clock = s.Link, s.Hub, s.ShardedHub, s.Clock
	b.onEnd = s.Link.OnOutage(b.Watchdog.Confirm)
	return b
}

func newSession(cfg Config, id string) *Session {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	s := &Session{
		Config: cfg,
		Args: Args{
			HolderInfo:     protocol.HolderInfo(os.Getpid(), host, cfg.Label),
			Lease:          protocol.Milliseconds(cfg.Lease),
			WaiterTimeout:  protocol.Milliseconds(cfg.WaiterTimeout),
			LingerCooldown: protocol.Number(10 * cfg.Linger.Microseconds()),
			Retention:      protocol.Milliseconds(protocol.Retention),
			Channels:       cfg.Prefix + ":s:",
		},
		Clock:   &wire.Clock{},
		id:      id,
		born:    time.Now(),
		closing: make(chan struct{}),
		over:    make(chan struct{}),
	}
	s.Ctx, s.cancel = context.WithCancel(context.Background())
	s.Watchdog = watchdog.New((*keeper)(s))
	return s
}

// random is the source of random numbers of the system. The variable keeps the reader with which the program
// has started. So if a program later replaces rand.Reader to get predictable numbers, ids stay random.
var random = rand.Reader

// NewID returns a random UUID. It has 22 characters instead of 36, because many requests and fields of keys
// contain it. Two sessions with the same id would share their locks. So NewID does not use uuid.New, whose
// source any package can replace by uuid.SetRand.
func NewID() string {
	id := uuid.Must(uuid.NewRandomFromReader(random))
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Channel returns the name of this session's own channel, which is a channel of classic pub/sub.
func (s *Session) Channel() string { return s.Args.Channels.(string) + s.id }

// SoleChannel returns Channel if a single server has all subscriptions, and otherwise "".
func (s *Session) SoleChannel() any {
	if s.Link.Single() {
		return s.Channel()
	}
	return ""
}

// ID returns the id of the session, with which the owner field of each of its locks begins.
func (s *Session) ID() string { return s.id }

// Owns reports whether an owner field belongs to this session.
func (s *Session) Owns(owner string) bool { return strings.HasPrefix(owner, s.id) }

// Holds reports whether an owner field belongs to a hold of this session that was not unlocked. If the field
// ends in "~", the hold was unlocked, and HoldAtLeast keeps the lock taken.
func (s *Session) Holds(owner string) bool { return s.Owns(owner) && !strings.HasSuffix(owner, "~") }

// Age returns the time since the session was made. It is never 0, so that a time of 0 can mean "never".
func (s *Session) Age() time.Duration { return time.Since(s.born) + 1 }

// Closing returns a channel that is closed when Shutdown begins. Waits end then.
func (s *Session) Closing() <-chan struct{} { return s.closing }

// Attempt returns the owner field of a new attempt. No other attempt ever has the same owner field.
func (s *Session) Attempt() string {
	var id [64]byte
	return string(strconv.AppendInt(append(append(id[:0], s.id...), ':'), s.attempts.Add(1), 10))
}

// Begin counts work of the caller. Shutdown waits for this work until the caller calls End. If Shutdown has
// begun, Begin counts nothing and returns false.
func (s *Session) Begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// End ends work that Begin has counted.
func (s *Session) End() { s.work.Done() }

// Go runs f in a goroutine for which Shutdown waits. The caller must be counted by Begin or Go.
func (s *Session) Go(f func()) { s.work.Go(f) }

// Warn logs a message. It recovers a panic of the logger.
func (s *Session) Warn(msg string, args ...any) {
	contain.Run(s.Logger, "lockline: the logger", func() { s.Logger.Warn("lockline: "+msg, args...) })
}

// About returns the holder info of a hold of this session whose call had this note.
func (s *Session) About(note string) string { return strings.TrimSpace(s.Args.Info(note).(string)) }

// PartOf returns the part of a session that has this key. The type of the key belongs to the caller's
// package. If there is no such part, PartOf makes one. make is called while the mutex of the session is held,
// so make must not call methods of the session. PartOf returns ErrClosed if Shutdown has begun.
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

// Forget removes the part with this key, which has ended before the session. If there is no such part, Forget
// does nothing.
func (s *Session) Forget(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The slice is cloned, because Shutdown may be reading it.
	s.parts = slices.DeleteFunc(slices.Clone(s.parts), func(p part) bool { return p.key == key })
}

// endGrace is the time for which Shutdown waits for the watchdog and the subscriptions after its context has
// ended. They end within microseconds, unless they call an observer or a logger that blocks.
const endGrace = 100 * time.Millisecond

// Shutdown releases all locks that the session holds, ends all waits, and ends the session. If ctx ends
// first, each lock that was not released is free when its lease ends. After the end of ctx, Shutdown returns
// even if an observer or a logger blocks.
func (s *Session) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		select {
		case <-s.over:
			return nil
		case <-ctx.Done():
			if wire.Closed(s.over) {
				return nil
			}
			return failure.OfContext(ctx)
		}
	}
	s.closed = true
	close(s.closing)
	parts := s.parts // the list does not grow any more
	s.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		var wg sync.WaitGroup
		for _, p := range parts { // at the same time, because one of them may wait for a silent server
			wg.Go(func() { s.Failed(p.Shutdown(ctx)) })
		}
		wg.Wait()
		s.work.Wait()
		done <- failure.Join(s.failed...) // no more errors can be added
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = failure.Within("not all was given back, the rest is left to its leases", failure.OfContext(ctx))
	}
	s.cancel()
	notGiven := err
	go func() {
		s.Watchdog.Close() // waits for callbacks
		s.onEnd()
		if notGiven != nil { // logged, because callers of a deferred Close ignore the error
			s.Warn("not all was given back when the session closed: the rest stays taken for its lease",
				"error", fmt.Sprintf("%.1000s", failure.Bare(notGiven)))
		}
		close(s.over)
	}()
	select {
	case <-s.over:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	select {
	case <-s.over:
	case <-grace.C:
		err = cmp.Or(err, failure.Within("an observer or a logger has not returned", failure.OfContext(ctx)))
	}
	return err
}

// Failed adds err to the errors that Shutdown returns. If err is nil, this has no effect.
func (s *Session) Failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// A Lessee has a lease that the watchdog renews. It is the Owner of the watchdog.Lease. Its methods may lock
// its own mutexes, and must not block.
type Lessee interface {
	// LeaseKey returns the key that determines the server of the lease.
	LeaseKey() string
	// Renewal returns the request that prolongs the lease to the session's watchdog timeout. If the lease is
	// fixed, prolongs is false, and the request only checks whether Redis still has the lease. A reply other
	// than 'K' means that Redis does not have the lease any more.
	Renewal() (r *wire.Request, prolongs bool)
	// LeaseLost is called at most once, when the deadline has passed or a renewal has found that the lease is
	// lost.
	LeaseLost(deadlinePassed bool)
	// RenewalFailed is called when a renewal has failed and will be tried again.
	RenewalFailed(err error)
}

// keeper is the Session with the methods that its watchdog calls.
type keeper Session

func (k *keeper) Server(l *watchdog.Lease) any { return k.Link.Server(l.Owner.(Lessee).LeaseKey()) }

func (k *keeper) Renew(ctx context.Context, server any, leases []*watchdog.Lease) []watchdog.Result {
	results := make([]watchdog.Result, len(leases))
	prolongs := make([]bool, len(leases))
	sent := time.Now()
	k.Link.Batch(ctx, server.(*redis.Client), len(leases), func(i int) (r *wire.Request) {
		r, prolongs[i] = leases[i].Owner.(Lessee).Renewal()
		return r
	}, func(i int, reply string, err error) {
		results[i].Gone, results[i].Err = err == nil && reply != "K", err
		if prolongs[i] {
			results[i].Deadline = sent.Add(protocol.Valid(k.Lease))
		}
	})
	return results
}

func (k *keeper) Lost(l *watchdog.Lease, deadlinePassed bool) {
	l.Owner.(Lessee).LeaseLost(deadlinePassed)
}

func (k *keeper) Failed(l *watchdog.Lease, err error) { l.Owner.(Lessee).RenewalFailed(err) }

// EventKind is the type of an event.
type EventKind uint8

const (
	EventWaiting EventKind = iota + 1
	EventAcquired
	EventNotAcquired
	EventReleased
	EventLost
	EventRenewFailed
)

// Event is one thing that has happened to a lock. rlock.Event has the same fields, with documentation.
type Event struct {
	Kind       EventKind
	Lock       string
	Name       string
	Session    string
	At         time.Time
	Wait       time.Duration
	Held       time.Duration
	Depth      int
	Token      int64
	Err        error
	HandedOver bool
}

// Observe passes an event of a lock to the observer of the session, if there is an observer for events of
// this kind.
func (s *Session) Observe(ctx context.Context, kind, name string, e Event) {
	if s.Observer != nil && (s.Only == 0 || s.Only == e.Kind) {
		e.Lock, e.Name, e.Session, e.At = kind, name, cmp.Or(e.Session, s.id), time.Now()
		contain.Run(s.Logger, "lockline: the observer", func() { s.Observer(ctx, e) })
	}
}

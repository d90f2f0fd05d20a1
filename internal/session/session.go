// Package session is one identity by which locks are held, and what they share: the way to Redis, the
// subscription connection, the watchdog, and an orderly end. It knows no kind of lock.
//
// What a kind keeps for a session is a Part, in the session's registry; what holds a
// lease is a Lessee, which the watchdog reaches through keeper.
//
// A session is open, then closing (waits end, nothing begins, what is held is given back), then over.
// Shutdown waits for all work that has begun. If its context ends first, the locks that Redis still has end
// with their leases. So the invariant "no trace" of docs/design.md is kept here.
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

// Config is what a session can be told.
type Config struct {
	Prefix   string
	Lease    time.Duration // of renewed locks: the watchdog timeout
	Liveness time.Duration // of waiters that queue in Redis
	Handover time.Duration // for how long what it holds is passed on in memory
	Linger   time.Duration // for how long it may keep what no goroutine has
	Label    string
	Logger   *slog.Logger
	Classic  bool      // no sharded pub/sub, also where it is possible
	Only     EventKind // if it is not 0, the observer is told of nothing else

	// Observer is called with no mutex held. The operation that it is told about waits until it returns.
	Observer func(ctx context.Context, e Event)
}

// Args are the arguments about a session that scripts get, each boxed once.
type Args struct {
	About    any // string: what it says of itself in the locks it holds
	Lease    any // string: the lease of renewed locks in milliseconds
	Liveness any // string: the same of Liveness
	Quiet    any // string: for how long after a wish nothing is kept that no goroutine has, in microseconds
	Keep     any // string: how long the metadata of an idle lock is kept, in milliseconds
	Channels any // string: what the names of sessions' channels begin with
}

// Info returns the holder info of an attempt: About with the note of its call, if it has one.
func (a *Args) Info(note string) any {
	if note == "" {
		return a.About // boxed already
	}
	return protocol.WithNote(a.About.(string), note)
}

// Session is one process's (or one component's) identity and what its locks share. All methods are safe for
// concurrent use.
type Session struct {
	// What follows never changes once the session is made.
	Config
	Args Args
	Link *wire.Link
	Hub  *pubsub.Hub

	// ShardedHub is for sharded channels; nil where none are used.
	ShardedHub *pubsub.Hub

	Watchdog *watchdog.Watchdog
	Clock    *wire.Clock     // of Redis
	Ctx      context.Context // ends with Shutdown's end: background work ends
	id       string
	onEnd    func()
	born     time.Time
	cancel   context.CancelFunc // of Ctx
	closing  chan struct{}      // closed when Shutdown begins
	over     chan struct{}      // closed when Shutdown is over

	attempts atomic.Int64
	// What Shutdown waits for; raised only while mu is held and the session open, or by a caller that is
	// counted.
	work sync.WaitGroup

	mu     sync.Mutex // guards what follows; a leaf
	closed bool
	parts  []part
	failed []error // what Shutdown returns beside the errors of the parts
}

// Outer is a Session as users have it: rlock.Session is another name for it. They reach nothing behind it.
type Outer struct{ inner *Session }

// Outer is the session as users have it.
func (s *Session) Outer() *Outer { return &Outer{s} }

// Session is what is inside; nil if o is nil.
func (o *Outer) Session() *Session {
	if o == nil {
		return nil
	}
	return o.inner
}

// A Part is what one kind keeps in a session.
type Part interface {
	// Shutdown gives back what the part holds. It is called once, when nothing can begin any more. It blocks
	// until Redis was told, or as long as ctx and the session's Ctx allow.
	Shutdown(ctx context.Context) error
}

type part struct {
	key any
	Part
}

// New makes a session on a client. No I/O.
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
		off      bool // 0 and less switch it off
	}{
		{"WithWatchdogTimeout", cfg.Lease, protocol.MinLease, false},
		{"WithWaiterTimeout", cfg.Liveness, protocol.MinLease, false},
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
		several = false // its servers know of no Cluster, as those of NewFailoverClusterClient
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

// NewBeside makes a session that uses the client, the subscriptions and the clock of another one, and ends
// before that. It has an identity and leases of its own.
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
			About:    protocol.HolderInfo(os.Getpid(), host, cfg.Label),
			Lease:    protocol.Milliseconds(cfg.Lease),
			Liveness: protocol.Milliseconds(cfg.Liveness),
			Quiet:    protocol.Number(10 * cfg.Linger.Microseconds()),
			Keep:     protocol.Milliseconds(protocol.Retention),
			Channels: cfg.Prefix + ":s:",
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

// random is the system's source of random numbers. The variable keeps the reader that the program started
// with, so that a program which replaces rand.Reader later, for numbers that repeat, does not change ids.
var random = rand.Reader

// NewID returns a random UUID in 22 characters instead of 36, because it is in every request, and in what
// locks leave in Redis. Two sessions with one id would share their locks. So it does not use uuid.New, whose
// source any package of the program can replace by uuid.SetRand.
func NewID() string {
	id := uuid.Must(uuid.NewRandomFromReader(random))
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Channel is where the session is told what is for it alone, by classic pub/sub.
func (s *Session) Channel() string { return s.Args.Channels.(string) + s.id }

// SoleChannel is Channel where only one server can know of its listeners; else "".
func (s *Session) SoleChannel() any {
	if s.Link.Single() {
		return s.Channel()
	}
	return ""
}

// ID is the session's part of the owner field of every lock it holds.
func (s *Session) ID() string { return s.id }

// Owns reports whether an owner field is one of this session.
func (s *Session) Owns(owner string) bool { return strings.HasPrefix(owner, s.id) }

// Holds reports whether a hold of this session has that owner field. One that ends in "~" has outlived its
// hold.
func (s *Session) Holds(owner string) bool { return s.Owns(owner) && !strings.HasSuffix(owner, "~") }

// Age returns the time since the session was made.
func (s *Session) Age() time.Duration { return time.Since(s.born) }

// Closing is closed when Shutdown begins: waiters end.
func (s *Session) Closing() <-chan struct{} { return s.closing }

// Attempt is the owner field of an attempt at a lock, which is never used again.
func (s *Session) Attempt() string {
	var id [64]byte
	return string(strconv.AppendInt(append(append(id[:0], s.id...), ':'), s.attempts.Add(1), 10))
}

// Begin reports false once the session is closed; else Shutdown waits for the caller's work until End.
func (s *Session) Begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// End ends what Begin has counted.
func (s *Session) End() { s.work.Done() }

// Go runs f in the background, and counts it. The caller must be counted already.
func (s *Session) Go(f func()) { s.work.Go(f) }

// Warn logs, whatever the logger does.
func (s *Session) Warn(msg string, args ...any) {
	contain.Run(s.Logger, "lockline: the logger", func() { s.Logger.Warn("lockline: "+msg, args...) })
}

// About returns the holder info of a lock that the session holds by a call with this note.
func (s *Session) About(note string) string { return strings.TrimSpace(s.Args.Info(note).(string)) }

// PartOf finds or makes the part of a session that has this key, a value of a type of the caller's own. make
// is called with a mutex held, so it must not use the session. The error is ErrClosed.
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

// Forget removes the part that has this key, which has ended, from a session that lives on. It does nothing
// if there is none.
func (s *Session) Forget(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A Shutdown may be reading the former slice.
	s.parts = slices.DeleteFunc(slices.Clone(s.parts), func(p part) bool { return p.key == key })
}

// endGrace is how long Shutdown waits for the end of the watchdog and of subscriptions once its context has
// ended. They need microseconds, unless they call an observer or a logger that blocks.
const endGrace = 100 * time.Millisecond

// Shutdown gives back all that the session holds or waits for and ends it. What is not done when ctx ends is
// left to the leases. Then it returns, even if an observer or a logger blocks.
func (s *Session) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		select {
		case <-s.over:
			return nil
		case <-ctx.Done():
			return failure.OfContext(ctx)
		}
	}
	s.closed = true
	close(s.closing)
	parts := s.parts // no more are added now
	s.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		for _, p := range slices.Backward(parts) { // the last one first: it may build on those before it
			s.Failed(p.Shutdown(ctx))
		}
		s.work.Wait()
		done <- failure.Join(s.failed...) // work was the last to add to it
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
		if notGiven != nil { // a deferred Close drops it
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

// Failed has Shutdown return an error, unless it is nil.
func (s *Session) Failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// A Lessee has a lease that the watchdog renews: the Owner of the watchdog.Lease. Its methods may take its
// own mutexes, and must not block.
type Lessee interface {
	// LeaseKey is the key by which the lease's server is found.
	LeaseKey() string
	// Renewal makes the request that renews the lease to the session's. If the lease is not renewed, prolongs
	// is false, and the request only finds out whether Redis has it. A reply other than 'K' says that it is
	// gone.
	Renewal() (r *wire.Request, prolongs bool)
	// LeaseLost is called once: the deadline has passed, or the renewal found the lease gone.
	LeaseLost(deadlinePassed bool)
	// RenewalFailed reports a renewal that will be tried again.
	RenewalFailed(err error)
}

// keeper is the session as its watchdog sees it.
type keeper Session

func (k *keeper) Server(l *watchdog.Lease) any { return k.Link.Server(l.Owner.(Lessee).LeaseKey()) }

func (k *keeper) Renew(ctx context.Context, server any, leases []*watchdog.Lease) []watchdog.Result {
	results := make([]watchdog.Result, len(leases))
	prolongs := make([]bool, len(leases))
	sent := time.Now()
	k.Link.Batch(ctx, server.(wire.Client), len(leases), func(i int) (r *wire.Request) {
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

// EventKind says what happened.
type EventKind uint8

const (
	EventWaiting EventKind = iota + 1
	EventAcquired
	EventNotAcquired
	EventReleased
	EventLost
	EventRenewFailed
)

// Event is one thing that happened to a lock. rlock.Event is the same, with the documentation.
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

// Observe tells the observer, if there is one, of something that happened to a lock.
func (s *Session) Observe(ctx context.Context, kind, name string, e Event) {
	if s.Observer != nil && (s.Only == 0 || s.Only == e.Kind) {
		e.Lock, e.Name, e.Session, e.At = kind, name, cmp.Or(e.Session, s.id), time.Now()
		contain.Run(s.Logger, "lockline: the observer", func() { s.Observer(ctx, e) })
	}
}

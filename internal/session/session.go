package session

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/contain"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/watchdog"
)

// Args are the arguments about a session that scripts get, each boxed once.
type Args struct {
	About    any // string: what it says of itself in the locks it holds
	Lease    any // string: the lease of renewed locks in milliseconds
	Liveness any // string: the same of Liveness
	Quiet    any // string: for how long after a wish nothing is kept that no goroutine has, in microseconds
	Keep     any // string: how long the metadata of an idle lock is kept, in milliseconds
	Channels any // string: what the names of sessions' channels begin with
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
}

func newSession(cfg Config, id string) *Session {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	s := &Session{
		Config: cfg,
		Args: Args{
			About:    strconv.Itoa(os.Getpid()) + "@" + host + " " + cfg.Label,
			Lease:    protocol.Milliseconds(cfg.Lease),
			Liveness: protocol.Milliseconds(cfg.Liveness),
			Quiet:    protocol.Number(10 * cfg.Linger.Microseconds()),
			Keep:     protocol.Milliseconds(protocol.Retention),
			Channels: cfg.Prefix + ":s:",
		},
		Clock:   wire.NewClock(),
		id:      id,
		born:    time.Now(),
		closing: make(chan struct{}),
		over:    make(chan struct{}),
	}
	s.Ctx, s.cancel = context.WithCancel(context.Background())
	s.Watchdog = watchdog.New((*keeper)(s))
	return s
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

// Age is the time since it was made.
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
func (s *Session) Go(f func()) {
	s.work.Go(f)
}

// Warn logs, whatever the logger does.
func (s *Session) Warn(msg string, args ...any) {
	contain.Run(s.Logger, "lockline: the logger", func() { s.Logger.Warn("lockline: "+msg, args...) })
}

// About is what the session says of itself in the locks it holds: process id, host, label.
func (s *Session) About() string { return strings.TrimSpace(s.Args.About.(string)) }

// closeHubs closes both at once, since each may wait for a dial.
func (s *Session) closeHubs() {
	var hubs sync.WaitGroup
	hubs.Go(s.Hub.Close)
	if s.ShardedHub != nil {
		hubs.Go(s.ShardedHub.Close)
	}
	hubs.Wait()
}

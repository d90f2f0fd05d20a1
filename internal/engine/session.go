package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/watchdog"
)

// SessionConfig is what a session can be told.
type SessionConfig struct {
	Prefix   string
	Lease    time.Duration // of renewed locks: the watchdog timeout
	Liveness time.Duration // of waiters that queue in Redis
	Streak   time.Duration // for how long a lock that does not queue is handed over in memory
	Label    string
	Logger   *slog.Logger
	Observer Observer
	Redisson bool
	Fenced   bool // with Redisson: its token counter is made where it does not exist
	Replicas wire.Replicas
	Batching int // requests under way above which further ones share pipelines; negative: none do
}

// MinLease is the shortest lease: less than network and timers need.
const MinLease = 10 * time.Millisecond

// Session is one process's (or one component's) identity and what its locks share.
type Session struct {
	SessionConfig
	id       string
	about    any // string: what it says of itself in the locks it holds
	renew    any // string: the lease in milliseconds
	liveness any // string: the same of Liveness
	memory   any // string: how long the tokens of an idle lock are remembered, in milliseconds
	channels any // string: what the names of sessions' channels begin with
	link     *wire.Link
	quorum   *quorum // in the place of link, for locks on several servers
	hub      *pubsub.Hub
	dog      *watchdog.Watchdog
	born     time.Time

	attempts atomic.Int64
	clock    *wire.Clock // of Redis

	closing chan struct{} // closed when Shutdown begins: waiters end
	over    chan struct{} // closed when Shutdown is over
	ctx     context.Context
	cancel  context.CancelFunc // with Shutdown's end: background work ends
	work    sync.WaitGroup     // acquisitions and background work; Add only under mu or by who is counted

	// mu guards closed, locks, lock.refs and quorums. A leaf, except that NewQuorum takes those of
	// all members at once, in the order of their ids.
	mu      sync.Mutex
	closed  bool
	locks   map[string]*lock
	quorums map[quorumID]*Session // of which this one is a member; they end with it at the latest

	queue     sync.Mutex        // guards what follows; only mu is taken under it
	queued    map[string]*group // those that wait in Redis, by owner field
	listening bool              // to the session's own channel
}

func NewSession(c wire.Client, cfg SessionConfig) (*Session, error) {
	if err := wire.Check(c); err != nil {
		return nil, fmt.Errorf("lockline: NewSession: %w", err)
	}
	if err := checkPrefix(cfg.Prefix); err != nil {
		return nil, err
	}
	if err := checkLease("WithWatchdogTimeout", cfg.Lease); err != nil {
		return nil, err
	}
	if err := checkLease("WithLiveness", cfg.Liveness); err != nil {
		return nil, err
	}
	if err := cfg.Replicas.Check(c, cfg.Lease); err != nil {
		return nil, fmt.Errorf("lockline: WithReplicas: %w", err)
	}
	if len(cfg.Label) > MaxName || !utf8.ValidString(cfg.Label) {
		return nil, fmt.Errorf("lockline: WithLabel: not at most %d bytes of UTF-8: %.40q", MaxName, cfg.Label)
	}
	s := newSession(cfg, uuid.NewString())
	s.link = wire.NewLink(c, wire.Options{Batching: cfg.Batching, Replicas: cfg.Replicas, Logger: cfg.Logger, Refusal: refusal, Context: s.ctx, Closing: s.closing})
	s.hub = pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return c.Subscribe(ctx) }, pubsub.Options{Logger: cfg.Logger})
	return s, nil
}

// newSession is all of a session but its way to a server.
func newSession(cfg SessionConfig, id string) *Session {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	s := &Session{
		SessionConfig: cfg,
		id:            id,
		about:         strconv.Itoa(os.Getpid()) + "@" + host + " " + cfg.Label,
		renew:         itoa(cfg.Lease.Milliseconds()),
		liveness:      itoa(cfg.Liveness.Milliseconds()),
		memory:        keepMemoryArg,
		channels:      cfg.Prefix + ":s:",
		born:          time.Now(),
		closing:       make(chan struct{}),
		over:          make(chan struct{}),
		locks:         map[string]*lock{},
		queued:        map[string]*group{},
		clock:         wire.NewClock(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.dog = watchdog.New((*keeper)(s))
	return s
}

func checkLease(what string, d time.Duration) error {
	if d < MinLease {
		return fmt.Errorf("lockline: %s: a lease of %v is shorter than %v", what, d, MinLease)
	}
	return nil
}

func (s *Session) age() time.Duration { return time.Since(s.born) }

// ID is the session's part of the owner field of every lock it holds.
func (s *Session) ID() string { return s.id }

// patience is how long after its sending a lock request is still welcome. Not
// longer than the lease: a copy that comes when its grant has expired must be void.
func patience(lease time.Duration) time.Duration {
	return min(lease, max(time.Second, min(lease/3, 10*time.Second)))
}

// valid is for how long after its sending a lease granted by Redis may be
// believed: two clocks' rates differ, and Redis counts in milliseconds. The
// margin is the one of the Redlock paper's reference implementations, 1 % and 2 ms.
func valid(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

// Shutdown gives back all that the session holds or waits for and ends it. What
// is not done when ctx ends is left to the leases.
func (s *Session) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		select {
		case <-s.over:
			return nil
		case <-ctx.Done():
			return ctxErr(ctx)
		}
	}
	s.closed = true
	close(s.closing)
	locks := make([]*lock, 0, len(s.locks))
	for _, l := range s.locks {
		locks = append(locks, l)
	}
	quorums := slices.Collect(maps.Values(s.quorums)) // no more are added now
	s.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		var failed []error
		for _, q := range quorums {
			failed = append(failed, q.Shutdown(ctx))
		}
		err := Join(append(failed, s.releaseAll(locks))...)
		s.work.Wait()
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = Within("not all was given back, the rest is left to its leases", ctxErr(ctx))
	}
	s.cancel()
	s.dog.Close()
	if s.hub != nil {
		s.hub.Close()
	}
	if s.quorum != nil {
		s.quorum.leave()
	}
	close(s.over)
	return err
}

// releaseAll ends the live streaks and frees them in Redis, in batches.
func (s *Session) releaseAll(locks []*lock) error {
	var ended []*streak
	for _, l := range locks {
		l.mu.Lock()
		st := l.streak
		l.mu.Unlock()
		if st != nil && st.end(closed, nil) {
			ended = append(ended, st)
		}
	}
	if s.quorum != nil {
		return s.quorum.releaseAll(ended)
	}
	fleets := map[wire.Server][]*streak{}
	for _, st := range ended {
		server := s.link.Server(st.lock.keys.lock())
		fleets[server] = append(fleets[server], st)
	}
	var (
		mu     sync.Mutex // guards failed
		failed []error
		wg     sync.WaitGroup
	)
	for server, fleet := range fleets {
		wg.Go(func() {
			for chunk := range slices.Chunk(fleet, watchdog.MaxBatch) {
				s.link.Batch(s.ctx, server, len(chunk), func(i int) (*wire.Script, wire.Request) {
					st := chunk[i]
					return st.lock.p.Release, (&release{l: st.lock, grant: st.final()}).Request(time.Time{})
				}, func(i int, reply string, err error) {
					st := chunk[i]
					if err != nil && wire.Judge(err).Resend {
						err = st.lock.giveBack(s.ctx, st.final(), wire.Tries).Err
					}
					if err != nil {
						mu.Lock()
						failed = append(failed, st.lock.keys.failed(err))
						mu.Unlock()
					}
				})
			}
		})
	}
	wg.Wait()
	return Join(failed...)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var keepMemoryArg any = itoa(keepMemory.Milliseconds())

// aboutHolder reads what a session said of itself: pid@host label.
func aboutHolder(about string) (pid int, host, label string) {
	id, label, _ := strings.Cut(about, " ")
	p, host, _ := strings.Cut(id, "@")
	pid, _ = strconv.Atoi(p)
	return pid, host, label
}

package pubsub

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/contain"
)

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second

	// closeGrace is what Close gives a dial to notice that its context has ended.
	closeGrace = 200 * time.Millisecond
)

// Options tune a [Hub]. The zero value is ready to use.
type Options struct {
	// PingInterval is the time between two pings. A connection (or the dialing of one) that
	// has been silent for two intervals is replaced. Default 3s.
	PingInterval time.Duration

	// Linger is how long a channel without listeners stays subscribed. Default 2s.
	Linger time.Duration

	// Logger gets the start (Warn) and the end (Info) of each outage. By default nothing is logged.
	// Should it panic, the hub goes on.
	Logger *slog.Logger
}

// Hub shares one subscription connection among any number of [Subscription]s; of a Cluster's sharded
// channels, one for each master that has some. All methods may be called by many goroutines at once.
type Hub struct {
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	sole    *shard        // has all channels; nil if a cluster tells where they are
	cluster Cluster       // nil if sole is not
	strayed chan struct{} // cap 1: the placing goroutine has to look again

	// mu guards all below, the fields of every channel and shard, the mailbox of every Subscription, and what
	// a link says is under it. It is held for moments: never across I/O, a wait or a log line.
	mu       sync.Mutex
	channels map[string]*channel // those with a listener, and those that linger
	running  int                 // goroutines: the owners of shards, and the placing one
	done     chan struct{}       // closed by the last of these as it ends; nil before the first one

	// Of a cluster:
	shards  map[Node]*shard // that have a channel
	astray  []*channel      // those that no shard has
	placing bool            // there is a goroutine that places them
	stale   bool            // the cluster's map may be: it is to be loaded again
	warned  time.Time       // when it was last logged that a channel cannot be subscribed
}

type channel struct {
	name      string
	listeners map[*Subscription]struct{}
	shard     *shard        // nil while astray
	confirmed bool          // by the server, on the present connection
	since     time.Time     // when it was
	idle      *list.Element // its place in shard.idle while it has no listeners
	idleSince time.Time

	// While astray, when to look for its shard, and how long the last such pause was: 0 once it is confirmed.
	due   time.Time
	pause time.Duration
}

// NewHub returns a hub that gets its connections from dial, one after another, as each one fails or
// comes to be needed again. It does no I/O and starts no goroutine before the first Subscribe.
//
// dial may connect at once or, as go-redis does, leave that to the Conn's first Subscribe. It should heed its
// context, which lives as long as the connection is wanted, and never return nil: what could not connect says
// so in its first Subscribe. A panic in it or in the Conn, as in a hook of go-redis, is an outage, too.
func NewHub(dial func(ctx context.Context) Conn, o Options) *Hub {
	h := newHub(o)
	h.sole = newShard(h, dialer(dial))
	return h
}

func newHub(o Options) *Hub {
	if o.PingInterval <= 0 {
		o.PingInterval = 3 * time.Second
	}
	if o.Linger <= 0 {
		o.Linger = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{
		options:  o,
		ctx:      ctx,
		cancel:   cancel,
		channels: make(map[string]*channel),
	}
}

// Subscribe listens to the named channel until the Subscription is closed. It never blocks and does no I/O:
// the Subscription is in force once it reports resubscribed, which is at once if the channel
// is confirmed already. A channel may be subscribed to any number of times; each
// Subscription gets every message. After Close of the hub nothing ever arrives.
func (h *Hub) Subscribe(name string) *Subscription {
	return h.subscribe(&Subscription{hub: h, ready: make(chan struct{}, 1)}, name)
}

// SubscribeTo is Subscribe with a channel for C of the caller's choice, of capacity 1, which Subscriptions of
// any hubs can share, so that one listener waits for all of them. When C is ready it has to Take from each.
// Take does not empty such a channel, or it would take the sign of what arrives meanwhile from one that was
// looked at before. The listener empties it, before it takes from the first.
func (h *Hub) SubscribeTo(name string, ready chan struct{}) *Subscription {
	return h.subscribe(&Subscription{hub: h, ready: ready, shared: true}, name)
}

func (h *Hub) subscribe(s *Subscription, name string) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return s
	}
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{name: name, listeners: make(map[*Subscription]struct{})}
		h.channels[name] = ch
		if h.sole != nil {
			h.sole.add(ch)
		} else {
			h.stray(ch, 0)
		}
	}
	if ch.idle != nil {
		ch.shard.idle.Remove(ch.idle)
		ch.idle = nil
	}
	s.channel = ch
	ch.listeners[s] = struct{}{}
	if ch.confirmed {
		s.resubscribe()
	}
	return s
}

// Close ends the connections and the hub's goroutines, and waits for them. But a dial that doesn't heed its
// context is left behind after a fraction of a second, to end by itself. Subscriptions need no closing then:
// they receive nothing more. Close may be called any number of times.
func (h *Hub) Close() {
	h.cancel()
	h.mu.Lock() // a Subscribe that saw the hub open has left done here; no later one starts a goroutine
	done := h.done
	h.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(closeGrace):
	}
}

// start runs f in a goroutine that Close waits for. The caller holds mu.
func (h *Hub) start(f func()) {
	if h.running == 0 {
		h.done = make(chan struct{})
	}
	h.running++
	go func() {
		f()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.running--; h.running == 0 {
			close(h.done)
		}
	}()
}

// log keeps the hub whole whatever the logger does.
func (h *Hub) log(level slog.Level, msg string, args ...any) {
	log := h.options.Logger
	contain.Run(log, "pubsub: the logger", func() { log.Log(context.Background(), level, msg, args...) })
}

// survive, deferred around calls of dial, its Conns and a Cluster, makes a panic in them an outage.
func (h *Hub) survive(err *error) {
	if p := recover(); p != nil {
		h.log(slog.LevelError, "pubsub: the connection panicked", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("the connection panicked: %v", p)
	}
}

// poke has a goroutine look again.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// longer is the pause after one, and half of it is random: many clients lose one server together.
func longer(pause time.Duration) (next, wait time.Duration) {
	next = min(max(2*pause, firstBackoff), lastBackoff)
	return next, next/2 + rand.N(next/2)
}

package pubsub

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
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

	// Linger is how long a channel that nobody listens to stays subscribed. Default 2s.
	Linger time.Duration

	// Logger gets the start (Warn) and the end (Info) of each outage. By default nothing is logged.
	// Should it panic or call runtime.Goexit, the hub goes on.
	Logger *slog.Logger
}

// Hub shares one subscription connection among any number of [Subscription]s.
// All methods may be called by many goroutines at once.
type Hub struct {
	dial    func(context.Context) Conn
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	poked   chan struct{} // cap 1: the owner has to look again

	// mu guards all below, the fields of every channel, the mailbox of every Subscription, and what a
	// link says is under it. It is held for moments: never across I/O, a wait or a log line.
	mu       sync.Mutex
	channels map[string]*channel // those with a listener, and those that linger
	fresh    []string            // of these, the ones that the connection has no SUBSCRIBE for yet
	idle     *list.List          // of these, the ones that linger, the longest idle first
	running  bool                // there is an owner
	done     chan struct{}       // closed by the last owner as it ends; nil before the first one
}

type channel struct {
	name      string
	listeners map[*Subscription]struct{}
	confirmed bool          // by the server, on the present connection
	idle      *list.Element // its place in Hub.idle while nobody listens
	idleSince time.Time
}

// NewHub returns a hub that gets its connections from dial, one after another, as each one fails or
// comes to be needed again. It does no I/O and starts no goroutine before the first Subscribe.
//
// dial may connect at once or, as go-redis does, leave that to the Conn's first Subscribe.
// It should heed its context, which lives as long as the connection is wanted, and never return nil:
// what could not connect says so in its first Subscribe. A panic in it or in the Conn, as in a hook of go-redis, is an
// outage, too.
func NewHub(dial func(ctx context.Context) Conn, o Options) *Hub {
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
		dial:     dial,
		options:  o,
		ctx:      ctx,
		cancel:   cancel,
		poked:    make(chan struct{}, 1),
		channels: make(map[string]*channel),
		idle:     list.New(),
	}
}

// Subscribe listens to the named channel until the Subscription is closed. It never blocks and does no I/O:
// the Subscription is in force once it reports resubscribed, which is at once if the channel
// is confirmed already. A channel may be subscribed to any number of times; each
// Subscription gets every message. After Close of the hub nothing ever arrives.
func (h *Hub) Subscribe(name string) *Subscription {
	return h.subscribe(&Subscription{hub: h, ready: make(chan struct{}, 1)}, name)
}

// SubscribeTo is Subscribe with a channel for C of the caller's choice, of capacity 1, which Subscriptions of any
// hubs can share: one listener then waits for all of them. When C is ready it has to Take from each. Take does not empty
// such a channel, or it would take the sign of what arrives meanwhile from one that was looked at before: the listener
// empties it, before it takes from the first.
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
		h.fresh = append(h.fresh, name)
		h.poke()
	}
	if ch.idle != nil {
		h.idle.Remove(ch.idle)
		ch.idle = nil
	}
	s.channel = ch
	ch.listeners[s] = struct{}{}
	if ch.confirmed {
		s.resubscribe()
	}
	if !h.running {
		h.running, h.done = true, make(chan struct{})
		go h.own(h.done)
	}
	return s
}

// Close ends the connection and the hub's goroutines, and waits for them; but a dial that doesn't heed
// its context is left behind after a fraction of a second, to end by itself. Subscriptions need no closing then:
// they hear nothing more. Close may be called any number of times.
func (h *Hub) Close() {
	h.cancel()
	h.mu.Lock() // a Subscribe that saw the hub open has left done here; no later one starts an owner
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

func (h *Hub) poke() {
	select {
	case h.poked <- struct{}{}:
	default:
	}
}

// own is the owner: it serves one connection after another while anybody needs one.
func (h *Hub) own(done chan struct{}) {
	defer close(done)
	var (
		backoff time.Duration
		outage  time.Time // when the present outage began; zero if there is none
	)
	for h.needed() {
		l := &link{hub: h, outage: outage, awaited: make(map[string]int)}
		err := l.serve()
		if err == nil || h.ctx.Err() != nil {
			continue
		}
		if l.answered {
			backoff, outage = 0, time.Time{}
		}
		if outage.IsZero() {
			outage = time.Now()
			h.log(slog.LevelWarn, "pubsub: connection lost, reconnecting", "error", err)
		}
		backoff = min(max(2*backoff, firstBackoff), lastBackoff)
		select {
		case <-time.After(backoff/2 + rand.N(backoff/2)): // many clients lose one server together
		case <-h.ctx.Done():
		}
	}
}

// log keeps the hub whole whatever the logger does.
func (h *Hub) log(level slog.Level, msg string, args ...any) {
	log := h.options.Logger
	contain.Run(log, "pubsub: the logger", func() { log.Log(context.Background(), level, msg, args...) })
}

// survive, deferred around calls of dial and its Conns, makes a panic in them an outage.
func (h *Hub) survive(err *error) {
	if p := recover(); p != nil {
		h.log(slog.LevelError, "pubsub: the connection panicked", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("the connection panicked: %v", p)
	}
}

// needed tells whether a connection is called for, and prepares for one, on which nothing is
// subscribed yet. If it isn't, the owner ends, and the next Subscribe starts another one.
func (h *Hub) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(time.Now())
	if len(h.channels) == 0 || h.ctx.Err() != nil {
		h.running = false
		return false
	}
	h.fresh = slices.Sorted(maps.Keys(h.channels))
	return true
}

// expire forgets the channels whose linger is over, and names them. The caller holds mu.
func (h *Hub) expire(now time.Time) (expired []string) {
	for e := h.idle.Front(); e != nil; e = h.idle.Front() {
		ch := e.Value.(*channel)
		if now.Before(ch.idleSince.Add(h.options.Linger)) {
			break
		}
		h.idle.Remove(e)
		delete(h.channels, ch.name)
		expired = append(expired, ch.name)
	}
	return expired
}

package pubsub

import (
	"container/list"
	"context"
	"log/slog"
	"math/rand/v2"
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

	// Server names the server in log lines, for example by its address. A hub of a Cluster names the node
	// that a line is about. By default, lines name none.
	Server string

	// OnReconnect is called after each outage: a connection on which the server had confirmed a channel was
	// lost, or replaced after Unheard, and a server has confirmed one of that connection's channels again.
	// That server may have restarted empty, or be another one.
	//
	// There is one call for each lost connection, however many channels it had. A sharded hub has a
	// connection to each master, so it calls for each. There is no call if all of the channels had lost their
	// listeners by then.
	//
	// OnReconnect runs with no mutex held, on the goroutine that reads messages, so it must return at once.
	// If it panics, the hub goes on.
	OnReconnect func()
}

// Hub shares one subscription connection among any number of [Subscription]s; of a Cluster's sharded
// channels, one for each master that has some. All methods may be called by many goroutines at once. Make it
// with [NewHub] or [NewShardedHub]: the methods of a zero or nil Hub panic.
type Hub struct {
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	cluster Cluster
	sharded bool           // a server refuses one channel by an error, and not a whole command
	work    sync.WaitGroup // the owners of shards, and what places channels

	// mu guards all below, the fields of every channel and shard, the mailbox of every Subscription, and what
	// a link says is under it. It is held for moments: never across I/O, a wait or a log line.
	mu       sync.Mutex
	channels map[string]*channel // those with a listener, and those that linger
	shards   map[Node]*shard     // each has an owner
	warned   time.Time           // when warn has logged last
}

type channel struct {
	name      string
	listeners map[*Subscription]struct{}
	shard     *shard        // nil while one is sought
	asked     *command      // the SUBSCRIBE on the present connection whose reply confirms it
	confirmed time.Time     // when that came; zero: it has not
	idle      *list.Element // its place in shard.idle while it has no listeners
	idleSince time.Time
	pause     time.Duration // before its shard was sought the last time; 0 once it is confirmed
	outage    *outage       // since its connection was lost, until it is confirmed again; nil: there is none
}

// An outage begins with the loss of a connection that had a confirmed channel. All channels of that
// connection share it. It ends when the first of them is confirmed again, perhaps by another server.
type outage struct{ ended bool }

// NewHub returns a hub that gets its connections from dial, one after another, as each one fails or
// comes to be needed again. It does no I/O and starts no goroutine before the first Subscribe.
//
// dial may connect at once or, as go-redis does, leave that to the Conn's first Subscribe. It should heed its
// context, which lives as long as the connection is wanted, and never return nil: what could not connect says
// so in its first Subscribe. A panic in it or in the Conn, as in a hook of go-redis, is an outage, too.
//
// NewHub panics if dial is nil.
func NewHub(dial func(ctx context.Context) Conn, o Options) *Hub {
	if dial == nil {
		panic("pubsub: NewHub: dial is nil")
	}
	return newHub(&sole{dial}, false, o)
}

// NewShardedHub returns a hub that subscribes to the sharded channels of a Cluster (Redis 7 or newer,
// Valkey), which have the messages of SPUBLISH. It keeps one connection for each node that has channels with
// listeners, and follows a channel that comes to be another node's. Each Subscription reports resubscribed
// after that, as it does after a reconnect. No I/O before the first Subscribe. It panics if c is nil.
func NewShardedHub(c Cluster, o Options) *Hub {
	if c == nil {
		panic("pubsub: NewShardedHub: the Cluster is nil")
	}
	return newHub(c, true, o)
}

func newHub(c Cluster, sharded bool, o Options) *Hub {
	if o.PingInterval <= 0 {
		o.PingInterval = 3 * time.Second
	}
	if o.Linger <= 0 {
		o.Linger = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnReconnect == nil {
		o.OnReconnect = func() {}
	}
	h := &Hub{options: o, cluster: c, sharded: sharded,
		channels: make(map[string]*channel), shards: make(map[Node]*shard)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
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
// looked at before. The listener empties it, before it takes from the first. SubscribeTo panics if ready is
// nil: nothing could become ready.
func (h *Hub) SubscribeTo(name string, ready chan struct{}) *Subscription {
	if ready == nil {
		panic("pubsub: SubscribeTo: ready is nil")
	}
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
		h.work.Go(func() { h.place(ch, 0) })
	}
	if ch.idle != nil {
		ch.shard.idle.Remove(ch.idle)
		ch.idle = nil
	}
	s.channel = ch
	ch.listeners[s] = struct{}{}
	if !ch.confirmed.IsZero() {
		s.resubscribe()
	}
	return s
}

// Close ends the connections and the hub's goroutines, and waits for them. But a dial that doesn't heed its
// context is left behind after a fraction of a second, to end by itself. Subscriptions need no closing then:
// they receive nothing more. Close may be called any number of times.
func (h *Hub) Close() {
	h.mu.Lock()
	h.cancel() // from now on, no Subscribe starts a goroutine
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeGrace):
	}
}

// log keeps the hub whole whatever the logger does.
func (h *Hub) log(level slog.Level, msg string, args ...any) {
	log := h.options.Logger
	contain.Run(log, "lockline: the logger", func() { log.Log(context.Background(), level, msg, args...) })
}

// warn logs once a minute at most.
func (h *Hub) warn(msg string, args ...any) {
	h.mu.Lock()
	now := time.Now()
	due := h.ctx.Err() == nil && now.Sub(h.warned) >= time.Minute
	if due {
		h.warned = now
	}
	h.mu.Unlock()
	if due {
		h.log(slog.LevelWarn, msg, args...)
	}
}

// poke makes c, of capacity 1, ready.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rest waits, unless the hub is closed.
func (h *Hub) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

// longer doubles a pause. Half of what is to be waited is random: many clients lose one server together.
func longer(pause *time.Duration) (wait time.Duration) {
	*pause = min(max(2**pause, firstBackoff), lastBackoff)
	return *pause/2 + rand.N(*pause/2)
}

// maxPending bounds a mailbox. A listener this far behind is better off asking its server.
const maxPending = 1024

// Subscription is one listener's mailbox for one channel. Its methods never block and may be
// called from any goroutine; C and Take are meant for a single listener. Those of a zero or nil Subscription
// panic.
type Subscription struct {
	hub    *Hub
	ready  chan struct{}
	shared bool // ready is, perhaps, with other Subscriptions

	// Guarded by hub.mu.
	channel      *channel // nil once closed
	messages     []string
	resubscribed bool
}

// C is ready (it has capacity 1) whenever Take has something; one that is shared, whenever any of them may
// have. It is never closed.
func (s *Subscription) C() <-chan struct{} { return s.ready }

// Take empties the mailbox. It returns the messages since the last Take, in the order in which they were
// published. It also reports whether anything else may have happened before now, so that the listener has to
// ask its server.
//
// That is so when the server has confirmed the subscription, for the first time or again after a
// reconnect, and when Subscribe found it confirmed. It is also so when more than 1024 messages were
// waiting, which were then dropped.
func (s *Subscription) Take() (messages []string, resubscribed bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	messages, resubscribed = s.messages, s.resubscribed
	s.messages, s.resubscribed = nil, false
	if !s.shared {
		select {
		case <-s.ready:
		default:
		}
	}
	return messages, resubscribed
}

// Unheard tells the hub that the server which publishes on the channel was asked at asked, or later, and knew
// of no listener. If the channel had been confirmed before, its connection leads to another server, as behind
// an endpoint that was moved, and a new one takes its place. Unheard never blocks.
func (s *Subscription) Unheard(asked time.Time) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := s.channel; ch != nil && !ch.confirmed.IsZero() && ch.confirmed.Before(asked) {
		ch.shard.misled = true
		poke(ch.shard.poked)
	}
}

// Close ends the subscription: nothing more is put into the mailbox, though what is there can still be
// taken. The channel lingers before it is unsubscribed. Close may be called any number of times.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := s.channel
	if ch == nil {
		return
	}
	s.channel = nil
	delete(ch.listeners, s)
	switch {
	case len(ch.listeners) > 0:
	case ch.shard == nil:
		delete(h.channels, ch.name) // it is subscribed nowhere
	default:
		ch.idleSince = time.Now()
		ch.idle = ch.shard.idle.PushBack(ch)
		if ch.shard.idle.Len() == 1 { // else the owner has an earlier expiry to wake up for
			poke(ch.shard.poked)
		}
	}
}

// put adds a message. The caller holds hub.mu.
func (s *Subscription) put(message string) {
	if len(s.messages) == maxPending {
		s.messages = nil
		s.resubscribed = true
	}
	s.messages = append(s.messages, message)
	poke(s.ready)
}

// resubscribe has the listener ask its server. The caller holds hub.mu.
func (s *Subscription) resubscribe() {
	s.resubscribed = true
	poke(s.ready)
}

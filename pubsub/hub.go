package pubsub

import (
	"container/list"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/contain"
)

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second

	// closeGrace is the longest time for which Close waits. The wait is limited, because a dial may not
	// notice that its context has ended.
	closeGrace = 200 * time.Millisecond
)

// Options tune a [Hub]. The zero value is ready to use.
type Options struct {
	// PingInterval is the time between two pings. The hub replaces a connection on which nothing has arrived
	// for two intervals, and gives up a dial after two intervals. Default 3s.
	PingInterval time.Duration

	// Linger is the time for which a channel without listeners stays subscribed. Default 2s.
	Linger time.Duration

	// Logger gets a line at the start (Warn) and at the end (Info) of each outage. It also gets other
	// warnings, at most one a minute. By default, the hub logs nothing. If the logger panics, the hub
	// continues.
	Logger *slog.Logger

	// Server is the name of the server in log lines, for example its address. By default, log lines name no
	// server. A hub of a Cluster does not use Server, because its log lines name the node of the connection.
	Server string

	// OnReconnect is called after each outage. An outage begins when a connection with a confirmed channel is
	// lost, or is replaced after [Subscription.Unheard]. The outage ends when a server confirms one of the
	// channels of that connection again. This server may have restarted without its data, or may be another
	// server.
	//
	// The hub calls OnReconnect once for each lost connection, however many channels the connection had. A
	// sharded hub has a connection to each master. If no channel of the connection is subscribed again,
	// because none of them has listeners any more, there is no call.
	//
	// OnReconnect runs in the goroutine that reads messages, so it must return at once. No mutex is held
	// then. If OnReconnect panics, the hub continues.
	OnReconnect func()
}

// A Hub shares one subscription connection among any number of [Subscription]s. For the sharded channels of a
// Cluster, it has one connection to each master that has some of the channels. All methods are safe for
// concurrent use. Make a Hub with [NewHub], [NewClusterHub] or [NewShardedHub]. The methods of a zero or nil
// Hub panic.
type Hub struct {
	options Options
	ctx     context.Context // canceled by Close
	cancel  context.CancelFunc
	cluster Cluster
	sharded bool           // the channels are sharded, so an error of the server may refuse a single channel
	work    sync.WaitGroup // counts owners of shards and goroutines that look for nodes

	// mu guards the fields below, and all fields of every channel. It also guards some fields of shards,
	// links and Subscriptions, whose comments name hub.mu. It is not held during I/O, a wait or a log line.
	mu       sync.Mutex
	channels map[string]*channel // channels that have a listener or linger
	shards   map[Node]*shard     // shards by node; each has an owner
	warned   time.Time           // time at which warn last wrote a line
	refusal  error               // error of the last refused SUBSCRIBE; nil after a later confirmation
}

type channel struct {
	name          string
	listeners     map[*Subscription]struct{}
	shard         *shard        // nil while a goroutine looks for the channel's node
	lastSubscribe *command      // last SUBSCRIBE on the present connection; its reply confirms the channel
	confirmed     time.Time     // time of the reply to lastSubscribe; zero means there was no reply yet
	idle          *list.Element // element of shard.idle; nil while the channel has listeners
	idleSince     time.Time     // when the channel lost its last listener
	pause         time.Duration // last pause before looking for a node; 0 after the channel was confirmed
	outage        *outage       // set when the connection is lost, until the channel is confirmed again
}

// An outage begins with the loss of a connection that had a confirmed channel. All channels of that
// connection share the outage. The outage ends when the first of these channels is confirmed again, perhaps
// by another server.
type outage struct{ ended bool }

// NewHub returns a hub that makes its connections by dial. The hub calls dial when it needs a connection and
// has none. Before the first Subscribe, the hub does no I/O and has no goroutine.
//
// dial may connect at once, or leave this to the first Subscribe of the Conn, as go-redis does. The context
// of dial lasts as long as the connection is needed. When the context ends, dial should return. It must not
// return nil, even if it cannot connect. In this case, the first Subscribe of the Conn must return the error.
// A panic in dial or in the Conn, for example in a hook of go-redis, counts as an outage.
//
// NewHub panics if dial is nil.
func NewHub(dial func(ctx context.Context) Conn, o Options) *Hub {
	if dial == nil {
		panic("pubsub: NewHub: dial is nil")
	}
	return newHub(&sole{dial}, false, o)
}

// NewShardedHub returns a hub that subscribes to the sharded channels of a Cluster (Redis 7 or newer,
// Valkey), which get the messages of SPUBLISH. The hub keeps one connection to each node that has channels
// with listeners, and follows a channel that moves to another node. Each Subscription reports resubscribed
// after such a move, as it does after a reconnect. The hub does no I/O before the first Subscribe.
// NewShardedHub panics if c is nil.
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
	o.PingInterval = min(o.PingInterval, math.MaxInt64/2) // two intervals must not overflow
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

// Subscribe returns a Subscription to the named channel. It never blocks and does no I/O. The Subscription is
// confirmed when Take first reports resubscribed. If the channel is already confirmed, Take reports this at
// once. A channel may have any number of Subscriptions, and each message goes to all of them. After Close of
// the hub, no message arrives.
func (h *Hub) Subscribe(name string) *Subscription {
	return h.subscribe(&Subscription{hub: h, ready: make(chan struct{}, 1)}, name)
}

// SubscribeTo works like [Hub.Subscribe], but the Subscription uses ready as its channel C. ready must have
// capacity 1. Several Subscriptions, even of different hubs, can share ready, so that one listener waits for
// all of them.
//
// When ready has a value, the listener must first receive the value, and then call Take of each Subscription
// that shares ready. Take itself does not receive from ready, because the value may announce a message of
// another Subscription. SubscribeTo panics if ready is nil.
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

// Refusal returns the last error with which a server has refused to subscribe channels of the hub, for
// example because a right is missing. If a server has confirmed a channel since then, or if the hub is
// closed, Refusal returns nil.
func (h *Hub) Refusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil
	}
	return h.refusal
}

// refuse records the error of a server that refuses to subscribe channels.
func (h *Hub) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusal = err
}

// Close closes the connections, and waits until the hub's goroutines have ended. If a dial does not return
// when its context ends, Close stops waiting after 200 ms. After Close of the hub, Subscriptions receive no
// more messages, and need not be closed. Close may be called any number of times.
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

// log writes a line. It recovers from a panic of the logger.
func (h *Hub) log(level slog.Level, msg string, args ...any) {
	log := h.options.Logger
	contain.Run(log, "lockline: the logger", func() { log.Log(context.Background(), level, msg, args...) })
}

// warn writes a line at level Warn, but at most one line a minute.
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

// poke sends a value to c, which has capacity 1, unless c already has a value.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rest waits for d, or until the hub is closed.
func (h *Hub) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

// longer doubles *pause, which is then at least firstBackoff and at most lastBackoff. It returns a random
// time from half of *pause to the whole. The time is random, because many clients may lose a server at the
// same time.
func longer(pause *time.Duration) (wait time.Duration) {
	*pause = min(max(2**pause, firstBackoff), lastBackoff)
	return *pause/2 + rand.N(*pause/2)
}

// maxPending is the largest number of messages in a mailbox. A listener that is so far behind should read the
// state from its server instead.
const maxPending = 1024

// A Subscription is one listener's mailbox for one channel. Its methods never block and may be called from
// any goroutine, but C and Take are meant for a single listener. Methods of a nil or zero Subscription may
// panic.
type Subscription struct {
	hub    *Hub
	ready  chan struct{}
	shared bool // other Subscriptions may use ready, too

	// hub.mu guards the fields below.
	channel      *channel // nil after Close
	messages     []string
	resubscribed bool
}

// C returns a channel of capacity 1, which gets a value when there is something for Take to return. If
// several Subscriptions share the channel, the value can be for any of them. The channel is never closed.
func (s *Subscription) C() <-chan struct{} { return s.ready }

// Take empties the mailbox. It returns the messages since the last Take, in the order in which they arrived.
// If resubscribed is true, the listener may have missed messages, so it has to read the state from its
// server. resubscribed is true
//   - after a server has confirmed the subscription, for the first time or again;
//   - after Subscribe, if the channel was already confirmed;
//   - after messages were dropped, because more than 1024 were waiting.
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

// Unheard reports to the hub that the server which publishes on the channel has no subscriber to it. The
// caller knows this from the server's reply to a request that was sent at sentAt or later. If the channel was
// confirmed before sentAt, the connection of the hub must lead to another server, for example because an
// endpoint has moved. The hub then replaces the connection. This method never blocks.
func (s *Subscription) Unheard(sentAt time.Time) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := s.channel; ch != nil && !ch.confirmed.IsZero() && ch.confirmed.Before(sentAt) {
		ch.shard.misled = true
		poke(ch.shard.poked)
	}
}

// Close ends the subscription. The mailbox gets no more messages, but Take still returns the messages that
// are in it. If the channel has no other listeners, it is unsubscribed after [Options.Linger]. Close may be
// called any number of times.
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
		delete(h.channels, ch.name) // no server has a subscription to unsubscribe
	default:
		ch.idleSince = time.Now()
		ch.idle = ch.shard.idle.PushBack(ch)
		if ch.shard.idle.Len() == 1 { // otherwise the owner already has an earlier time to wake up
			poke(ch.shard.poked)
		}
	}
}

// put adds a message to the mailbox. If the mailbox is full, put first empties it. The caller must hold
// hub.mu.
func (s *Subscription) put(message string) {
	if len(s.messages) == maxPending {
		s.messages = nil
		s.resubscribed = true
	}
	s.messages = append(s.messages, message)
	poke(s.ready)
}

// resubscribe makes Take report resubscribed. The caller must hold hub.mu.
func (s *Subscription) resubscribe() {
	s.resubscribed = true
	poke(s.ready)
}

package wire

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
)

// Options of a Link.
type Options struct {
	Logger *slog.Logger

	// Context ends with all that happens in the background. From the close of Closing on, no request that a
	// goroutine waits for is sent again.
	Context context.Context
	Closing <-chan struct{}
}

// Link is the way of many goroutines' requests to one server, or to a Cluster.
type Link struct {
	options Options
	client  Client
	reading reading // of the client

	// Batching is how many requests to a server may be under way before further ones share pipelines. None do
	// if it is negative. Tests set it before the first request.
	Batching int

	answered atomic.Bool // a request, ever

	outages outageListeners

	whole server   // the only one, or a Cluster while its servers are not known
	nodes sync.Map // the *server of each master of a Cluster by its address
}

// NewLink makes no connection.
func NewLink(c Client, o Options) *Link {
	return &Link{options: o, client: c, reading: readingOf(c), Batching: batching}
}

// Single reports whether all keys are on one server.
func (l *Link) Single() bool {
	_, one := l.client.(*redis.Client) // others may know more than one
	return one
}

// Addr is where the one server is; "" where it is not known, as of a Cluster.
func (l *Link) Addr() string {
	if c, ok := l.client.(*redis.Client); ok && c.Options().Addr != "FailoverClient" {
		return c.Options().Addr
	}
	return ""
}

// Leads reports whether both links lead to the same place. Two addresses of one server are not noticed.
func (l *Link) Leads(to *Link) bool {
	if l.client == to.client {
		return true
	}
	a, b := l.Addr(), to.Addr()
	return a != "" && a == b &&
		l.client.(*redis.Client).Options().Network == to.client.(*redis.Client).Options().Network
}

// Server is the client of a key's server, so that a batch never waits for two of them: a Cluster's pipeline
// returns when its slowest node does. It also names the server.
func (l *Link) Server(key string) Client {
	if _, to := l.server(l.options.Context, key); to != nil {
		return to
	}
	return l.client
}

var errNoMaster = errors.New("a client of this type may have several servers, " +
	"and does not say which has a key")

// master is the client of the server that has a key.
func (l *Link) master(ctx context.Context, key string) (node *redis.Client, err error) {
	defer l.survive(&err)
	switch c := l.client.(type) {
	case *redis.Client:
		return c, nil
	case interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}:
		return c.MasterForKey(ctx, key)
	}
	return nil, errNoMaster
}

// Outcome is how a request ended, whichever of its copies was answered.
type Outcome struct {
	Reply string
	Sent  time.Time // before the answered copy was sent
	// Unanswered is the error of the last copy without an answer, which may have run, or may run yet.
	Unanswered error
	Err        error
	Again      bool      // it makes sense to send it again at once
	Failing    time.Time // if there is an error: since when the server has carried out no request
}

// Tries is how often a request is sent at most: as often as go-redis does by default.
const Tries = 4

// Call sends a request until it is answered, most times at most. If a goroutine waits for the answer, left
// tells when that goroutine has gone. From then on, or once Closing is closed, the request is not sent again.
// ctx brings a trace and may keep a request from being sent, but does not interrupt one that was.
func (l *Link) Call(ctx context.Context, c Copier, most int, left *atomic.Bool) (o Outcome) {
	again, extra := false, -1
	for try := 1; ; try++ {
		o.Sent = time.Now()
		l.process(ctx, c.Request(o.Sent), again, &o)
		again = true
		v := Verdict{}
		if o.Err != nil {
			v = Judge(o.Err)
		}
		if v.Unknown {
			o.Unanswered = o.Err
		}
		o.Again = v.Resend
		if demoted(o.Err) {
			if extra < 0 {
				extra = l.stale()
			}
			if extra > 0 && ctx.Err() == nil && (left == nil || !left.Load()) {
				extra--
				try--
				continue
			}
		}
		if !o.Again || try >= most || ctx.Err() != nil ||
			left != nil && (left.Load() || Closed(l.options.Closing)) ||
			!Pause(l.options.Context, Backoff(try, 4*time.Millisecond, 64*time.Millisecond)) ||
			left != nil && left.Load() {
			return o
		}
		if c, ok := c.(interface{ Failed(error) }); ok {
			c.Failed(o.Err)
		}
	}
}

// stale returns how often a request that a demoted server refused may be sent again at once. The client's
// address may lead to the new master by now, but the pooled connections do not. Each of them is closed after
// such a reply, so it takes one request for each, and one for a new connection. A Cluster's nodes reply with
// the right address.
func (l *Link) stale() int {
	if c, ok := l.client.(*redis.Client); ok {
		return int(c.PoolStats().IdleConns) + 1
	}
	return 0
}

// explained returns the error of a request with what the Link knows of its cause.
func (l *Link) explained(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	err = refusal(err)
	if moved(err) && l.Single() {
		err = marked(err, errMisdirected)
	}
	return Explain(ctx, err, l.reading.speaksTLS, l.answered.Load())
}

// Closed reports whether c is closed, of a channel on which nothing is sent.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// process sends a request, in a pipeline with others or in a write of its own, and waits for its answer.
// again: it was sent before, perhaps with others, whose faults it must not share each time.
func (l *Link) process(ctx context.Context, r *Request, again bool, o *Outcome) {
	s, to := l.server(ctx, r.Args()[3].(string)) // its first key: all are in one slot
	if !s.answers.Load() || s.stands() {
		defer l.watchRequest(s)()
	}
	// Before it counts, or the server would look silent since its last answer.
	if s.underWay.Load() == 0 {
		s.since.Store(int64(time.Since(epoch)))
	}
	n := s.underWay.Add(1)
	defer s.underWay.Add(-1) // also where a hook of the client calls runtime.Goexit
	var g *gathering
	if free, _ := ctx.Value(gatheringKey{}).(*atomic.Pointer[gathering]); free != nil {
		g = free.Swap(nil)
	}
	var b *batch
	switch {
	case g != nil: // it is the first request of its call in Gather
		if to == nil { // the server is not known yet
			to, _ = l.master(ctx, r.Args()[3].(string))
		}
		b = g.join(ctx, l, to, r)
	case to != nil && !again && l.Batching >= 0 && n > int64(l.Batching):
		b = s.join(l, to, r)
	}
	reply, err := l.answer(ctx, b, r)
	o.Reply, o.Err = reply, l.explained(ctx, err)
	if o.Failing = l.returned(s, o.Sent, o.Err); !o.Failing.IsZero() {
		l.logFailure(s, o.Failing, o.Err)
	}
}

// answer waits for the answer to a request of a batch. nil: it is in none, and is sent in a write of its own.
// So is one that its batch has left alone, or that has moved: the client of a Cluster follows then.
func (l *Link) answer(ctx context.Context, b *batch, r *Request) (reply string, err error) {
	defer l.survive(&err)
	if b != nil {
		select {
		case <-b.over:
		case <-ctx.Done():
			if !Closed(b.over) { // the pipeline goes on, and has r
				return "", ctx.Err()
			}
		}
		if moved(r.Err()) {
			r.reset()
		}
	}
	if b == nil || r.unanswered() {
		_ = l.client.Process(ctx, r)
		if noScript(r.Err()) {
			r.asEval()
			_ = l.client.Process(ctx, r)
		}
		if orphaned(r.Err()) {
			_ = l.client.Process(ctx, newParting())
		}
	}
	return r.Result()
}

// survive, deferred around a call of the client, makes a panic in it an error: one that went on
// would leave what it was called for unfinished, or end the process.
func (l *Link) survive(err *error) {
	if p := recover(); p != nil {
		*err = l.panicked(p)
	}
}

// panicked logs a panic of the client, while its stack is there.
func (l *Link) panicked(value any) *panicError {
	stack := string(debug.Stack())
	contain.Run(l.options.Logger, "lockline: the logger", func() {
		l.options.Logger.Error("lockline: the client panicked", "panic", value, "stack", stack)
	})
	return &panicError{value: value}
}

// Pause waits, and reports false when ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff doubles from first to most, half of it at random.
func Backoff(try int, first, most time.Duration) time.Duration {
	d := min(first<<min(try, 16), most)
	return d/2 + rand.N(d/2)
}

// server is what is known of whether one answers, and what is about to leave for it.
type server struct {
	answers  atomic.Bool  // it has, and has left no request without an answer since
	underWay atomic.Int64 // requests
	// since is when it last answered, or when the first of those under way was sent, counted from epoch.
	since   atomic.Int64
	failing atomic.Pointer[outage] // it carries no request out, though it may answer; nil: it does
	logged  outageLog
	addr    string // of a Cluster's master; never changes

	mu   sync.Mutex // guards open, and what is put into it; a leaf
	open *batch     // that requests join
}

// epoch is what instants are counted from that are kept in atomic numbers.
var epoch = time.Now()

// outage is since when a server carries no request out, and how the last one failed.
type outage struct {
	since  time.Time
	err    error
	broken bool // the server may have lost data: see mayHaveLost
}

// errSilent is the trouble with a server that has not answered for a while.
var errSilent = errors.New("it has not answered for a while")

// stands reports whether requests are under way, and none was answered for a while.
func (s *server) stands() bool {
	return s.underWay.Load() > 0 && time.Since(epoch)-time.Duration(s.since.Load()) > slow
}

// Trouble returns why the server of a key is known to carry out no request, or not to answer, and since when.
// The error is nil if neither is known.
func (l *Link) Trouble(ctx context.Context, key string) (since time.Time, err error) {
	s, _ := l.server(ctx, key)
	if s.stands() { // perhaps for longer than requests have failed
		since, err = epoch.Add(time.Duration(s.since.Load())), errSilent
	}
	if f := s.failing.Load(); f != nil {
		err = f.err
		if since.IsZero() || f.since.Before(since) {
			since = f.since
		}
	}
	return since, err
}

// server is the server of a key, and its client. That is nil if it is not known, as before the first answer
// of a Cluster: to ask for it could take long.
func (l *Link) server(ctx context.Context, key string) (*server, *redis.Client) {
	if one, ok := l.client.(*redis.Client); ok {
		return &l.whole, one
	}
	if !l.answered.Load() {
		return &l.whole, nil
	}
	node, err := l.master(ctx, key)
	if err != nil {
		return &l.whole, nil
	}
	addr := node.Options().Addr
	s, ok := l.nodes.Load(addr)
	if !ok {
		s, _ = l.nodes.LoadOrStore(addr, &server{addr: addr})
	}
	return s.(*server), node
}

// serverAt returns the server that has this client, as Server returns it.
func (l *Link) serverAt(to Client) *server {
	if node, ok := to.(*redis.Client); ok {
		if s, ok := l.nodes.Load(node.Options().Addr); ok {
			return s.(*server)
		}
	}
	return &l.whole
}

// returned learns how a request ended, and says since when none is carried out; zero: this one was.
func (l *Link) returned(s *server, sent time.Time, err error) time.Time {
	if errors.Is(err, ErrUnsent) {
		return time.Time{}
	}
	if err == nil || errors.As(err, new(redis.Error)) {
		s.since.Store(int64(time.Since(epoch)))
		s.answers.Store(true)
		l.answered.Store(true)
	} else if !errors.Is(err, context.Canceled) { // it may not have been sent
		s.answers.Store(false)
	}
	last := s.failing.Load()
	if err == nil {
		s.logged.ended()
		if last != nil && s.failing.CompareAndSwap(last, nil) && last.broken {
			l.outages.notify(last.since) // the server answers again
		}
		return time.Time{}
	}
	f := &outage{since: sent, err: err, broken: mayHaveLost(err)}
	begins := f.broken
	if last != nil {
		f.since, f.broken, begins = last.since, f.broken || last.broken, f.broken && !last.broken
		if errors.Is(err, context.Canceled) { // which says less
			f.err = last.err
		}
	}
	s.failing.Store(f)
	if begins {
		l.outages.notify(sent)
	}
	return f.since
}

// Clock estimates a server's clock, in microseconds. Its zero value knows nothing yet. Safe for concurrent
// use.
type Clock struct {
	offset atomic.Int64 // of the server's clock from epoch, as learned from the last reply; 0: not known
}

// Now is the server's clock at a local time; 0 while nothing is known of it.
func (c *Clock) Now(local time.Time) int64 {
	if off := c.offset.Load(); off != 0 {
		return off + local.Sub(epoch).Microseconds()
	}
	return 0
}

// Heard learns the clock from a reply. It counts from the sending, so
// that an estimate errs to the later side, and a request is not called late before it is.
func (c *Clock) Heard(now int64, sent time.Time) {
	c.offset.Store(now - sent.Sub(epoch).Microseconds())
}

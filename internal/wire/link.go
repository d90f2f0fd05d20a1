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
	Logger  *slog.Logger
	Refusal func(error) error // decodes an error that a script raised; any other, and nil, it returns as is

	// Context ends with all that happens in the background. From the close of Closing on, no request that a
	// goroutine waits for is sent again.
	Context context.Context
	Closing <-chan struct{}
}

// Link is the way of many goroutines' requests to one server, or to a Cluster.
type Link struct {
	options Options
	client  Client
	born    time.Time

	// Batching is how many requests may be under way before further ones share pipelines. None do if it is
	// negative. Tests set it before the first request.
	Batching int

	answered atomic.Bool // a request, ever

	whole pulse    // of the one server, or of a Cluster while its servers are not known
	nodes sync.Map // the pulse of each master of a Cluster by its address

	underWay atomic.Int64 // requests

	batching sync.Mutex // guards what follows, and what is put into batches; a leaf
	batches  map[*redis.Client]*batch
}

// NewLink makes no connection.
func NewLink(c Client, o Options) *Link {
	return &Link{
		options: o, client: c, born: time.Now(), Batching: batching, batches: map[*redis.Client]*batch{},
	}
}

func (l *Link) age() time.Duration { return time.Since(l.born) }

// Single reports whether all keys are on one server.
func (l *Link) Single() bool {
	_, one := l.client.(*redis.Client) // others may know more than one
	return one
}

// secure reports whether the client speaks TLS, if it tells.
func (l *Link) secure() (secure, known bool) {
	switch c := l.client.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().TLSConfig != nil, true
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().TLSConfig != nil, true
	}
	return false, false
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
	if node, err := l.master(l.options.Context, key); err == nil {
		return node
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
func (l *Link) Call(ctx context.Context, sc *Script, c Copier, most int, left *atomic.Bool) (o Outcome) {
	for try := 1; ; try++ {
		o.Sent = time.Now()
		r := c.Request(o.Sent)
		o.Reply, o.Failing, o.Err = l.process(ctx, r, sc, try > 1)
		l.judge(ctx, &o)
		if !o.Again || try >= most || ctx.Err() != nil || left != nil && (left.Load() || l.closing()) ||
			!Pause(l.options.Context, Backoff(try, 4*time.Millisecond, 64*time.Millisecond)) ||
			left != nil && left.Load() {
			return o
		}
		if c, ok := c.(interface{ Failed(error) }); ok {
			c.Failed(o.Err)
		}
	}
}

// judge judges how the last copy ended.
func (l *Link) judge(ctx context.Context, o *Outcome) {
	o.Again = false
	if o.Err == nil {
		return
	}
	o.Err = l.options.Refusal(o.Err)
	if moved(o.Err) && l.Single() {
		o.Err = &misdirected{o.Err}
	}
	if secure, known := l.secure(); known {
		o.Err = Explain(ctx, o.Err, secure, l.answered.Load())
	}
	v := Judge(o.Err)
	if v.Unknown {
		o.Unanswered = o.Err
	}
	o.Again = v.Resend
}

func (l *Link) closing() bool {
	select {
	case <-l.options.Closing:
		return true
	default:
		return false
	}
}

// process sends a request and waits for its answer. again: it was sent before, perhaps with others, whose
// faults it must not share each time.
func (l *Link) process(
	ctx context.Context, r Request, sc *Script, again bool,
) (reply string, failing time.Time, err error) {
	p, sent := l.pulse(ctx, r.key()), time.Now()
	l.sends(p)
	reply, err = l.transmit(ctx, r, sc, again)
	return reply, l.returned(p, sent, err), err
}

func (l *Link) transmit(ctx context.Context, r Request, sc *Script, again bool) (string, error) {
	defer l.underWay.Add(-1)
	n := l.underWay.Add(1)
	seat := seatOf(ctx)
	if seat != nil || !again && l.Batching >= 0 && n > int64(l.Batching) { // not alone
		switch to, err := l.master(l.options.Context, r.key()); {
		case err == nil && seat != nil:
			return seat.request(ctx, l, to, r, sc)
		case err == nil:
			return l.together(ctx, to, r, sc)
		case seat != nil:
			seat.next()
		}
	}
	return l.alone(ctx, r, sc)
}

// alone sends a request in a write of its own.
func (l *Link) alone(ctx context.Context, r Request, sc *Script) (reply string, err error) {
	defer l.survive(&err)
	_ = l.client.Process(ctx, r)
	if noScript(r.Err()) {
		r = r.asEval(sc)
		_ = l.client.Process(ctx, r)
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

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
	"github.com/lockline/lockline/internal/failure"
)

// Options of a Link.
type Options struct {
	Logger *slog.Logger

	// Context is canceled when the session has ended, and ends all work in the background. After Closing is
	// closed, Call does not send a request again, unless its parameter left is nil.
	Context context.Context
	Closing <-chan struct{}
}

// A Link sends the requests of many goroutines to one server, or to a Cluster.
type Link struct {
	options Options
	client  Client
	reading reading

	// Batching is the number of requests to a server that may be in flight before further requests share
	// pipelines. If it is negative, requests never share pipelines. Tests set it before the first request.
	Batching int

	answered atomic.Bool // a server has answered a request at least once

	outages outageListeners

	whole server   // the only server, or a Cluster while its masters are not known
	nodes sync.Map // address of a Cluster's master -> *server
}

// NewLink makes no connection.
func NewLink(c Client, o Options) *Link {
	return &Link{options: o, client: c, reading: readingOf(c), Batching: batching}
}

// Single reports whether all keys are on one server.
func (l *Link) Single() bool {
	_, one := l.client.(*redis.Client) // clients of other types may have several servers
	return one
}

// Addr returns the address of the only server. It returns "" for a Cluster, and for a client that finds its
// server by Sentinels.
func (l *Link) Addr() string {
	if c, ok := l.client.(*redis.Client); ok && c.Options().Addr != "FailoverClient" {
		return c.Options().Addr
	}
	return ""
}

// Leads reports whether both links lead to the same place. Leads does not notice that two addresses belong to
// the same server.
func (l *Link) Leads(to *Link) bool {
	if l.client == to.client {
		return true
	}
	a, b := l.Addr(), to.Addr()
	return a != "" && a == b &&
		l.client.(*redis.Client).Options().Network == to.client.(*redis.Client).Options().Network
}

// Server returns the client of the server that has a key. Requests for keys with the same result can share a
// pipeline of this client, which waits for one server only. (A pipeline of a Cluster's client returns when
// its slowest node has replied.) If the server is not known, Server returns the client of the Link.
func (l *Link) Server(key string) Client {
	if _, to := l.server(l.options.Context, key); to != nil {
		return to
	}
	return l.client
}

var errNoMaster = errors.New("a client of this type may have several servers, " +
	"and does not say which has a key")

// master returns the client of the server that has a key.
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

// An Outcome is the result of a request, of which several copies may have been sent.
type Outcome struct {
	Reply string
	Sent  time.Time // time just before the last copy was sent
	// Unanswered is the error of the last copy that got no reply, and may have run or may still run. nil
	// means that there was no such copy.
	Unanswered error
	Err        error     // error of the last copy
	Again      bool      // sending the request again at once makes sense
	Failing    time.Time // if Err is not nil: time since which the server has carried out no request
}

// Tries is the usual limit of the copies that Call sends. go-redis sends as many by default.
const Tries = 4

// Call sends copies of a request until one is answered, or until another copy would not help. It sends at
// most `most` copies, not counting copies that a demoted server refused (see stale). left is set when the
// goroutine that waits for the reply leaves. After that, or after Closing is closed, the request is not sent
// again. If left is nil, as for a release, Closing does not matter. ctx may carry a trace. If ctx ends, no
// further copy is sent, but a copy that was sent may still run.
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

// stale returns the number of times that a request may be sent again at once after a demoted server refused
// it. The client's address may lead to the new master already, but pooled connections still lead to the old
// one. go-redis closes a connection after such a reply. So one request is needed for each pooled connection,
// and one for a new connection. stale returns 0 for any client other than a *redis.Client. For example, the
// nodes of a Cluster reply with the right address.
func (l *Link) stale() int {
	if c, ok := l.client.(*redis.Client); ok {
		return int(c.PoolStats().IdleConns) + 1
	}
	return 0
}

// explained returns err with its cause, if the Link recognizes the cause (see marked). err is the error of a
// request to s, which was sent at the time sent.
func (l *Link) explained(ctx context.Context, s *server, sent time.Time, err error) error {
	if err == nil {
		return nil
	}
	if op := (*net.OpError)(nil); errors.Is(err, os.ErrDeadlineExceeded) &&
		!(errors.As(err, &op) && op.Op == "dial") {
		// go-redis returns the error of the socket, which often names no server.
		waited := max(time.Since(sent).Round(time.Millisecond), time.Millisecond)
		text := fmt.Sprintf("no answer from Redis%s within %v: %v", l.place(s), waited, err)
		err = failure.Worded(text, err)
	}
	err = refusal(err)
	if moved(err) && l.Single() {
		err = marked(err, errMisdirected)
	}
	if s.addr != "" && errors.As(err, new(redis.Error)) { // the reply does not name the node
		err = failure.Worded(err.Error()+" (node "+s.addr+")", err)
	}
	return Explain(ctx, err, l.reading.speaksTLS, l.answered.Load())
}

// place returns " at " and the address of a server, or "" if the address is not known.
func (l *Link) place(s *server) string {
	if addr := cmp.Or(s.addr, l.Addr()); addr != "" {
		return " at " + addr
	}
	return ""
}

// SilenceHint returns a possible reason why a server answers nothing, in parentheses, or "" if there is
// nothing to say.
func (l *Link) SilenceHint() string {
	if l.reading.speaksTLS && !l.answered.Load() {
		return " (the client has a TLSConfig: does the server speak TLS?)"
	}
	return ""
}

// Closed reports whether c is closed. Nothing may be sent on c.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// process sends a request, alone or in a pipeline with other requests, and waits for the reply. If the
// request is sent again, it is sent alone, because another request of its pipeline may have caused the
// failure.
func (l *Link) process(ctx context.Context, r *Request, again bool, o *Outcome) {
	s, to := l.server(ctx, r.Args()[3].(string)) // the first key; all keys are in one slot
	if !s.answers.Load() || s.isSilent() {
		defer l.watchRequest(s)()
	}
	// Set s.since before the request is counted. Otherwise the server would count as silent since its last
	// reply.
	if s.inFlight.Load() == 0 {
		s.since.Store(int64(time.Since(epoch)))
	}
	n := s.inFlight.Add(1)
	defer s.inFlight.Add(-1) // deferred, because a hook of the client may call runtime.Goexit
	var g *gathering
	if free, _ := ctx.Value(gatheringKey{}).(*atomic.Pointer[gathering]); free != nil {
		g = free.Swap(nil)
	}
	var b *batch
	switch {
	case g != nil: // the first request of a call in Gather
		if to == nil { // the method server does not load the map of a Cluster
			to, _ = l.master(ctx, r.Args()[3].(string))
		}
		b = g.join(ctx, l, to, r)
	case to != nil && !again && l.Batching >= 0 && n > int64(l.Batching):
		b = s.join(l, to, r)
	}
	reply, err := l.answer(ctx, b, r)
	o.Reply, o.Err = reply, l.explained(ctx, s, o.Sent, err)
	if o.Failing = l.returned(s, o.Sent, o.Err); !o.Failing.IsZero() {
		l.logFailure(s, o.Failing, o.Err)
	}
}

// answer returns the reply to a request. If the request is in a batch, answer waits until the batch is done
// or ctx ends. answer sends the request itself in three cases:
//   - the request is in no batch (b is nil);
//   - it was the only request of its batch, which was not sent;
//   - the server replied that the key is on another server, to which the client of a Cluster sends it.
func (l *Link) answer(ctx context.Context, b *batch, r *Request) (reply string, err error) {
	defer l.survive(&err)
	if b != nil {
		select {
		case <-b.done:
		case <-ctx.Done():
			if !Closed(b.done) { // r must not be used, because the pipeline still uses it
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

// survive turns a panic of the client into an error. It is deferred around each call of the client. Otherwise
// a panic would end the process, or leave the caller's work unfinished.
func (l *Link) survive(err *error) {
	if p := recover(); p != nil {
		*err = l.panicked(p)
	}
}

// panicked logs a panic of the client with its stack, and returns the panic as an error.
func (l *Link) panicked(value any) *panicError {
	stack := string(debug.Stack())
	contain.Run(l.options.Logger, "lockline: the logger", func() {
		l.options.Logger.Error("lockline: the client panicked", "panic", value, "stack", stack)
	})
	return &panicError{value: value}
}

// Pause waits for d. It returns false at once if ctx ends.
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

// Backoff returns the pause after a number of failed tries. It is a random time between d/2 and d. Here d is
// first, doubled once for each try, but at most the parameter most.
func Backoff(try int, first, most time.Duration) time.Duration {
	d := min(first<<min(try, 16), most)
	return d/2 + rand.N(d/2)
}

// A server has the state of a server that requests are sent to, and the batch that is about to be sent to it.
type server struct {
	answers  atomic.Bool  // the server has answered, and since then only canceled requests got no reply
	inFlight atomic.Int64 // number of requests in flight
	// since is the time of the last reply or, if that is later, the time at which the first of the requests
	// in flight was sent. It is counted from epoch.
	since   atomic.Int64
	failing atomic.Pointer[outage] // nil means there is no outage
	logged  outageLog
	addr    string // address of a Cluster's master; "" for any other server. Never changes

	mu   sync.Mutex // guards open, and the requests in it; no other mutex is locked while it is held
	open *batch     // the batch that requests join; nil means the next request opens one
}

// epoch is the time from which times in atomic integers are counted.
var epoch = time.Now()

// An outage is a time in which a server carries out no request, although it may reply.
type outage struct {
	since  time.Time
	err    error // error of the last request
	broken bool  // the server may have lost data: see mayHaveLost
}

// errSilent is the error of Trouble for a server that is silent.
var errSilent = errors.New("it has not answered for a while")

// Silent reports whether an error of Trouble means that the server is silent.
func Silent(err error) bool { return errors.Is(err, errSilent) }

// isSilent reports whether requests are in flight, and the server has sent no reply for longer than slow.
func (s *server) isSilent() bool {
	return s.inFlight.Load() > 0 && time.Since(epoch)-time.Duration(s.since.Load()) > slow
}

// Trouble returns an error if the server of a key is known to carry out no requests or not to answer, and the
// time since which this is so. Otherwise the error is nil.
func (l *Link) Trouble(ctx context.Context, key string) (since time.Time, err error) {
	s, _ := l.server(ctx, key)
	if s.isSilent() { // the silence may have begun before the outage
		since = epoch.Add(time.Duration(s.since.Load()))
		err = fmt.Errorf("%w%s", errSilent, l.SilenceHint())
	}
	if f := s.failing.Load(); f != nil {
		err = f.err
		if since.IsZero() || f.since.Before(since) {
			since = f.since
		}
	}
	return since, err
}

// server returns the server of a key, and its client. The client is nil if the server is not known. For a
// Cluster, this is so until the first reply, because loading the map of the Cluster could take long.
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

// returned notes the end of a request. If the request failed, returned returns the time since which the
// server has carried out no request. For a success, and for ErrUnsent, it returns the zero Time.
func (l *Link) returned(s *server, sent time.Time, err error) time.Time {
	if errors.Is(err, ErrUnsent) {
		return time.Time{}
	}
	if err == nil || errors.As(err, new(redis.Error)) {
		s.since.Store(int64(time.Since(epoch)))
		s.answers.Store(true)
		l.answered.Store(true)
	} else if !errors.Is(err, context.Canceled) { // a canceled request may not have been sent
		s.answers.Store(false)
	}
	last := s.failing.Load()
	if err == nil {
		if lasted := s.logged.ended(); lasted > 0 {
			l.logEnd(s, lasted)
		}
		if last != nil && s.failing.CompareAndSwap(last, nil) && last.broken {
			l.outages.notify(last.since) // the server answers again
		}
		return time.Time{}
	}
	f := &outage{since: sent, err: err, broken: mayHaveLost(err)}
	begins := f.broken
	if last != nil {
		f.since, f.broken, begins = last.since, f.broken || last.broken, f.broken && !last.broken
		if errors.Is(err, context.Canceled) { // the earlier error says more
			f.err = last.err
		}
	}
	s.failing.Store(f)
	if begins {
		l.outages.notify(sent)
	}
	return f.since
}

// A Clock estimates a server's clock, in microseconds. The zero value has no estimate yet. It is safe for
// concurrent use.
type Clock struct {
	offset atomic.Int64 // Redis time at epoch in microseconds, by the last reply; 0 means not known
}

// Now returns the server's time at a local time. It returns 0 if there was no reply yet.
func (c *Clock) Now(local time.Time) int64 {
	if off := c.offset.Load(); off != 0 {
		return off + local.Sub(epoch).Microseconds()
	}
	return 0
}

// Sync sets the clock. now is the server's time in the reply to a request. Sync assumes that the clock showed
// now when the request was sent, although the server read its clock later. So the new estimate is not behind
// the server's clock, and no request expires too early.
func (c *Clock) Sync(now int64, sent time.Time) {
	c.offset.Store(now - sent.Sub(epoch).Microseconds())
}

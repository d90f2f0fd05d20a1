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
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
	"github.com/lockline/lockline/internal/failure"
)

// Options has the options of a Link.
type Options struct {
	Logger *slog.Logger

	// Context is canceled when the session has ended. This ends the pause of each Call, which then sends no
	// further copy.
	//
	// Closing is closed when the session begins to close. Call describes its effect.
	Context context.Context
	Closing <-chan struct{}
}

// A Link sends the requests of many goroutines to one server, or to a Cluster.
type Link struct {
	options Options
	client  Client
	reading reading

	// Batching is the number of requests to a server that may be in flight before further requests share
	// pipelines. If it is negative, only the requests of Gather and Batch share pipelines. Tests set it
	// before the first request.
	Batching int

	answered atomic.Bool // a server has answered a request at least once

	outages outageListeners

	whole server   // the only server, or the whole Cluster while the master of a key is not known
	nodes sync.Map // address of a Cluster's master -> *server
}

// NewLink returns a Link that sends requests by the client c. It makes no connection.
func NewLink(c Client, o Options) *Link {
	return &Link{options: o, client: c, reading: readingOf(c), Batching: batching}
}

// Single reports whether all keys are known to be on one server.
func (l *Link) Single() bool {
	_, one := l.client.(*redis.Client) // clients of other types may have several servers
	return one
}

// Addr returns the address of the only server. It returns "" for a client that finds its server by Sentinels,
// and for a client of another type than *redis.Client.
func (l *Link) Addr() string {
	if c, ok := l.client.(*redis.Client); ok && c.Options().Addr != "FailoverClient" {
		return c.Options().Addr
	}
	return ""
}

// Leads reports whether both links have the same client or the same address. It returns false if two
// different addresses belong to the same server.
func (l *Link) Leads(to *Link) bool {
	if reflect.ValueOf(l.client).Comparable() && l.client == to.client {
		return true
	}
	a, b := l.Addr(), to.Addr()
	return a != "" && a == b &&
		l.client.(*redis.Client).Options().Network == to.client.(*redis.Client).Options().Network
}

// Server returns the client of the server that has a key. It returns nil if the server is not known.
//
// Requests for keys with the same result can share a pipeline (Batch). A pipeline of a server's client waits
// for one server only. A pipeline of a Cluster's client returns when the slowest node has replied.
func (l *Link) Server(key string) *redis.Client {
	_, to := l.server(l.options.Context, key)
	return to
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
	// Unanswered is the error of the last copy that may have run, or may still run. nil means that there was
	// no such copy.
	Unanswered error
	Err        error     // error of the last copy
	Again      bool      // sending the request again at once makes sense
	Failing    time.Time // time since which the server carries out no request; zero without an outage
}

// Tries is the usual limit of the copies that Call sends. go-redis sends as many by default.
const Tries = 4

// Call sends copies of a request until one succeeds, or until another copy would not help. It sends at most
// `most` copies. Copies that a demoted server refused do not count, up to the number that stale returns.
//
// left is set when the goroutine that waits for the reply leaves. After that, Call sends no further copy.
// After Closing is closed, Call sends no further copy either, except in two cases: left is nil, as for a
// release, or the last copy does not count.
//
// ctx may carry a trace. If ctx ends, Call sends no further copy, but a copy that was sent may still run.
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
		if c, ok := c.(interface{ Failed(error) }); ok && o.Err != nil {
			c.Failed(o.Err)
		}
		if demoted(o.Err) {
			if extra < 0 {
				extra = l.stale()
			}
			if extra > 0 && ctx.Err() == nil && !isSet(left) {
				extra--
				try--
				continue
			}
		}
		if !o.Again || try >= most || ctx.Err() != nil ||
			isSet(left) || left != nil && Closed(l.options.Closing) ||
			!Pause(l.options.Context, Backoff(try, 4*time.Millisecond, 64*time.Millisecond)) || isSet(left) {
			return o
		}
	}
}

// isSet reports whether b is true. A nil pointer counts as false.
func isSet(b *atomic.Bool) bool { return b != nil && b.Load() }

// stale returns the number of times that a request may be sent again at once after a demoted server refused
// it. The client's address may lead to the new master already, but pooled connections still lead to the old
// one. go-redis closes a connection after the refusal (newParting). So one request is needed for each pooled
// connection, and one for a new connection. stale returns 0 for any client other than a *redis.Client. The
// client of a Cluster needs no such requests, because nodes reply with the right address.
func (l *Link) stale() int {
	if c, ok := l.client.(*redis.Client); ok {
		return int(c.PoolStats().IdleConns) + 1
	}
	return 0
}

// explained adds details to err, such as the address of the server, and marks err if the Link recognizes its
// cause (Explain). err is the error of a request that was sent to s at the time sent.
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

// SilenceHint returns a possible reason why a server answers nothing, in parentheses. It returns "" if no
// reason is known.
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

// process sends a request, alone or in a pipeline with other requests, and waits for the reply. If again is
// true, an earlier copy has failed. Then the request is sent alone, because another request of its pipeline
// may have caused the failure.
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
		if to == nil { // until the first reply, the method server does not load the map of a Cluster
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
//   - the request is the only request of its batch, so send has not sent the batch;
//   - the server replied that the key is on another server. If the client is the client of a Cluster, it
//     sends the request to that server.
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

// survive turns a panic of the client into an error. Functions that call methods of the client defer survive.
// Otherwise a panic would end the process, or leave the caller's work unfinished.
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
	addr    string // constant; address of a Cluster's master, or "" for any other server

	mu   sync.Mutex // guards open and its requests; no other mutex is locked while mu is held
	open *batch     // the batch that requests join; nil means the next request opens one
}

// epoch is the time from which times in atomic integers are counted.
var epoch = time.Now()

// An outage is a time in which a server carries out no request, although it may reply with errors.
type outage struct {
	since time.Time
	err   error // error of the last request
	// brokenAt is the time of the first error after which the server may have lost data (mayHaveLost). It is
	// zero if there was no such error.
	brokenAt time.Time
}

// errSilent is the error of Trouble for a server that is silent.
var errSilent = errors.New("it has not answered for a while")

// Silent reports whether an error of Trouble means that the server is silent.
func Silent(err error) bool { return errors.Is(err, errSilent) }

// isSilent reports whether requests are in flight, and the server has sent no reply for longer than slow.
func (s *server) isSilent() bool {
	return s.inFlight.Load() > 0 && time.Since(epoch)-time.Duration(s.since.Load()) > slow
}

// Trouble returns an error if the server of a key does not answer, or answers but carries out no requests.
// since is the time at which this began. If no such trouble is known, err is nil.
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

// server returns the server of a key, and its client. The client is nil if the server is not known. In a
// Cluster, no server is known until the first reply, because loading the map of the Cluster could take long.
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

// serverAt returns the server whose client is node, which is a result of Server.
func (l *Link) serverAt(node *redis.Client) *server {
	if node != nil {
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
		if last != nil && s.failing.CompareAndSwap(last, nil) && !last.brokenAt.IsZero() {
			l.outages.notify(last.brokenAt) // the server answers again
		}
		return time.Time{}
	}
	f := &outage{since: sent, err: err}
	if last != nil {
		f.since, f.brokenAt = last.since, last.brokenAt
		if errors.Is(err, context.Canceled) { // the earlier error says more
			f.err = last.err
		}
	}
	begins := f.brokenAt.IsZero() && mayHaveLost(err)
	if begins {
		f.brokenAt = time.Now()
	}
	s.failing.Store(f)
	if begins {
		l.outages.notify(f.brokenAt)
	}
	return f.since
}

// A Clock estimates a server's clock, in microseconds. The zero value has no estimate yet. A Clock is safe
// for concurrent use.
type Clock struct {
	offset atomic.Int64 // Redis time at epoch in microseconds, according to the last reply; 0 means not known
}

// Now returns the server's time at a local time. It returns 0 if there was no reply yet.
func (c *Clock) Now(local time.Time) int64 {
	if off := c.offset.Load(); off != 0 {
		return off + local.Sub(epoch).Microseconds()
	}
	return 0
}

// Sync sets the clock. now is the server's time in the reply to a request that was sent at the time sent.
// Sync assumes that the clock showed now when the request was sent, although the server read its clock later.
// So the new estimate is not behind the server's clock, and no request expires too early.
func (c *Clock) Sync(now int64, sent time.Time) {
	c.offset.Store(now - sent.Sub(epoch).Microseconds())
}

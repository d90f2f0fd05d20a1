package wire

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// batching is how many requests of a session may be under way before further ones share pipelines. With
// fewer, goroutines that share a pipeline come to run in step, and client and server wait for each other in
// turn. Sharing costs at 8, is even at 16, and pays above (BenchmarkSharing of rlock).
const batching = 16

// A batch has a quarter of the requests that are under way, at most: with fewer and larger ones, client and
// server wait for each other in turn. maxBatch keeps a batch from keeping a server from others for long: a
// millisecond or so.
const (
	minBatch = batching / 2
	maxBatch = 100
)

// full reports whether a batch of n requests leaves.
func (l *Link) full(n int) bool {
	return n >= min(max(minBatch, int(l.underWay.Load()/4)), maxBatch)
}

// batch is requests of several goroutines to one server, which share a pipeline.
type batch struct {
	ctx      context.Context // of the pipeline
	requests []Request
	scripts  []*Script
	over     chan struct{} // closed when each request has its answer or error, or is alone and unsent
}

func newBatch(ctx context.Context) *batch { return &batch{ctx: ctx, over: make(chan struct{})} }

func (b *batch) add(sc *Script, r Request) {
	b.requests, b.scripts = append(b.requests, r), append(b.scripts, sc)
}

// batches are the open ones, by where they go.
type batches map[*redis.Client]*batch

// add puts a request into the batch for a server, and returns that and the request's place. If it opens the
// batch, that is 0, and ctx is the pipeline's.
func (bs batches) add(ctx context.Context, to *redis.Client, r Request, sc *Script) (b *batch, i int) {
	if b = bs[to]; b == nil {
		b = newBatch(ctx)
		bs[to] = b
	}
	b.add(sc, r)
	return b, len(b.requests) - 1
}

// answer waits for that to the i-th request, for the goroutine of ctx. What has moved is sent again: the
// client of a Cluster follows then.
func (b *batch) answer(ctx context.Context, l *Link, i int) (string, error) {
	<-b.over
	r := b.requests[i]
	if moved(r.Err()) {
		r = r.again()
	}
	if r.unanswered() {
		return l.alone(ctx, r, b.scripts[i])
	}
	return r.Result()
}

// together sends the request in one pipeline with those that other goroutines are about to send. No request
// waits for another's answer before it leaves, nor for time to pass. The goroutine that opens a batch lets
// the goroutines that are ready run, and then sends what they have put in. That takes long beside goroutines
// that compute, and yet sharing pays there, too.
func (l *Link) together(ctx context.Context, to *redis.Client, r Request, sc *Script) (string, error) {
	l.batching.Lock()
	b, i := l.batches.add(context.Background(), to, r, sc)
	sends := l.full(len(b.requests))
	if sends {
		delete(l.batches, to) // nothing more is put in
	}
	l.batching.Unlock()
	if i == 0 { // it has opened the batch
		runtime.Gosched()
		l.batching.Lock()
		if sends = l.batches[to] == b; sends { // it was not full
			delete(l.batches, to)
		}
		l.batching.Unlock()
	}
	if sends {
		l.send(to, b)
	}
	return b.answer(ctx, l, i)
}

// send sends a batch. One request is left to its goroutine.
func (l *Link) send(to Client, b *batch) {
	if len(b.requests) == 1 {
		close(b.over)
		return
	}
	l.pipeline(to, b)
}

// pipeline sends a batch in a pipeline, and again in full those requests whose script the server does not
// know. Each has an answer or an error then, even if the client panics.
func (l *Link) pipeline(to Client, b *batch) {
	returned := false
	defer func() {
		defer close(b.over)
		if returned {
			return
		}
		p := recover()
		if p == nil {
			p = "runtime.Goexit"
		}
		err := l.panicked(p)
		err.shared = len(b.requests) > 1
		for _, r := range b.requests {
			r.fail(err)
		}
	}()
	pipe := to.Pipeline()
	for _, r := range b.requests {
		_ = pipe.Process(b.ctx, r)
	}
	exec(b.ctx, pipe)
	pipe = to.Pipeline()
	for i, r := range b.requests {
		if noScript(r.Err()) {
			b.requests[i] = r.asEval(b.scripts[i])
			_ = pipe.Process(b.ctx, b.requests[i])
		}
	}
	exec(b.ctx, pipe) // none, most often
	returned = true
}

// exec sends a pipeline. Where go-redis tells no command why it was not sent (a hook refused it, or the
// server a new connection), exec tells each.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	commands, err := pipe.Exec(ctx)
	for _, c := range commands {
		if r, ok := c.(Request); ok && err != nil {
			r.fail(err)
		}
	}
}

// Batch sends many requests to one server in one pipeline and reports each reply.
func (l *Link) Batch(
	ctx context.Context, to Client, n int, build func(i int) (*Script, Request),
	answer func(i int, reply string, err error),
) {
	b := newBatch(ctx)
	for i := range n {
		b.add(build(i))
	}
	l.pipeline(to, b)
	for i := range n {
		reply, err := b.answer(ctx, l, i)
		answer(i, reply, refusal(err))
	}
}

// ErrUnsent is the error of what was not asked for, because something before it cannot be had.
var ErrUnsent = errors.New("lockline: not asked for, since another one cannot be had")

// Gather calls f for 0 to n-1, each in a goroutine of its own, and returns their errors once all have
// returned. The first request that a call makes with its context leaves together with those of the others, in
// one pipeline for each server and in the order of the calls.
//
// A call begins when the one before has made its first request or has returned. If it has returned an error
// without a request, nothing is sent of the calls before it, and those behind it are not made: their error is
// ErrUnsent. So no call may wait for another one before its request.
func Gather(ctx context.Context, n int, f func(ctx context.Context, i int) error) []error {
	g := &gathering{ctx: ctx, f: f, errs: make([]error, n), batches: batches{}}
	g.calls.Add(n)
	if n > 0 {
		g.call(0)
	}
	g.calls.Wait()
	return g.errs
}

type gathering struct {
	ctx  context.Context
	f    func(ctx context.Context, i int) error
	errs []error // each belongs to its call

	// What the calls have put in so far. It belongs to the call that begins, until it has made its first
	// request or has returned.
	batches batches
	link    *Link // of one of the requests

	// calls have not returned. One may return before another goroutine makes its request.
	calls sync.WaitGroup
}

// seat is the place of the i-th call.
type seat struct {
	*gathering
	i int
}

type seatKey struct{}

func (g *gathering) call(i int) {
	// Until the call's first request, or its return. The contexts of what it takes keep this, and no more.
	free := new(atomic.Pointer[seat])
	free.Store(&seat{g, i})
	defer func() { // also where a hook of the client calls runtime.Goexit
		switch s := free.Swap(nil); {
		case s == nil: // it has made its request
		case g.errs[i] != nil:
			s.fail()
		default:
			s.next()
		}
		g.calls.Done()
	}()
	g.errs[i] = g.f(context.WithValue(g.ctx, seatKey{}, free), i)
}

// next has the call behind this one begin. Behind the last, the requests leave.
func (s *seat) next() {
	if s.i+1 < len(s.errs) {
		go s.call(s.i + 1)
		return
	}
	for to, b := range s.batches {
		if len(s.batches) == 1 {
			s.link.send(to, b)
		} else {
			go s.link.send(to, b)
		}
	}
}

// fail ends it: this call has failed.
func (s *seat) fail() {
	for _, b := range s.batches {
		for _, r := range b.requests {
			r.fail(ErrUnsent)
		}
		close(b.over)
	}
	for i := s.i + 1; i < len(s.errs); i++ {
		s.errs[i] = ErrUnsent
		s.calls.Done()
	}
}

// request sends a request to one server with those of the other calls.
func (s *seat) request(
	ctx context.Context, l *Link, to *redis.Client, r Request, sc *Script,
) (string, error) {
	b, i := s.batches.add(ctx, to, r, sc)
	s.link = l
	s.next()
	return b.answer(ctx, l, i)
}

package wire

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// batching is how many requests to a server may be under way before further ones share pipelines. With fewer,
// goroutines that share a pipeline come to run in step, and client and server wait for each other in turn.
// Sharing costs at 8, is even at 16, and pays above (BenchmarkSharing of rlock).
const batching = 16

// A batch has a quarter of the requests that are under way, at most: with fewer and larger ones, client and
// server wait for each other in turn. maxBatch keeps a batch from keeping a server from others for long: a
// millisecond or so.
const (
	minBatch = batching / 2
	maxBatch = 100
)

// full reports whether a batch of n requests leaves.
func (s *server) full(n int) bool {
	return n >= min(max(minBatch, int(s.underWay.Load()/4)), maxBatch)
}

// batch is requests of several goroutines to one server, which share a pipeline.
type batch struct {
	ctx      context.Context // of the pipeline
	requests []*Request
	over     chan struct{} // closed when each request has its answer or error, or is alone and unsent
}

func newBatch(ctx context.Context) *batch { return &batch{ctx: ctx, over: make(chan struct{})} }

// fail gives an error to each request that was not answered.
func (b *batch) fail(err error) {
	for _, r := range b.requests {
		r.fail(err)
	}
}

// join puts a request into a pipeline with those that other goroutines are about to send to a server. No
// request waits for another's answer before it leaves, nor for time to pass. The goroutine that opens a batch
// lets the goroutines that are ready run, and then sends what they have put in. That takes long beside
// goroutines that compute, and yet sharing pays there, too.
func (s *server) join(l *Link, to *redis.Client, r *Request) *batch {
	s.mu.Lock()
	opens := s.open == nil
	if opens {
		s.open = newBatch(context.Background())
	}
	b := s.open
	b.requests = append(b.requests, r)
	sends := s.full(len(b.requests))
	if sends {
		s.open = nil // nothing more is put in
	}
	s.mu.Unlock()
	if opens {
		runtime.Gosched()
		s.mu.Lock()
		if sends = s.open == b; sends { // it was not full
			s.open = nil
		}
		s.mu.Unlock()
	}
	if sends {
		l.send(to, b)
	}
	return b
}

// send sends a batch. A single request is left to its goroutine. Several are sent by a goroutine of their
// own, because each of those that wait for them leaves when its own context ends.
func (l *Link) send(to Client, b *batch) {
	if len(b.requests) == 1 {
		close(b.over)
		return
	}
	go l.pipeline(to, b)
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
		b.fail(err)
	}()
	exec(b.ctx, to, b.requests)
	var unknown []*Request
	for _, r := range b.requests {
		if noScript(r.Err()) {
			r.asEval()
			unknown = append(unknown, r)
		}
	}
	exec(b.ctx, to, unknown) // none, most often
	returned = true
}

// exec sends requests in a pipeline. Where go-redis tells none why it was not sent (a hook refused it, or the
// server a new connection), exec tells each.
func exec(ctx context.Context, to Client, requests []*Request) {
	pipe := to.Pipeline()
	for _, r := range requests {
		_ = pipe.Process(ctx, r)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, r := range requests {
			r.fail(err)
		}
		if orphaned(err) { // pipelines can have a pool of their own
			_ = pipe.Process(ctx, newParting())
			_, _ = pipe.Exec(ctx)
		}
	}
}

// Batch sends many requests to one server in one pipeline and reports each reply.
func (l *Link) Batch(
	ctx context.Context, to Client, n int, build func(i int) *Request,
	answer func(i int, reply string, err error),
) {
	b := newBatch(ctx)
	for i := range n {
		b.requests = append(b.requests, build(i))
	}
	sent := time.Now()
	l.pipeline(to, b)
	var outcome error // of the server: it carries requests out if it has carried out one of these
	for i, r := range b.requests {
		reply, err := l.answer(ctx, b, r)
		err = l.explained(ctx, err)
		if i == 0 || err == nil {
			outcome = err
		}
		answer(i, reply, err)
	}
	at := l.serverAt(to)
	if failing := l.returned(at, sent, outcome); !failing.IsZero() {
		l.logFailure(at, failing, outcome)
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
	g := &gathering{batches: map[*redis.Client]*batch{}, begun: make(chan error)}
	errs := make([]error, n)
	var calls sync.WaitGroup
	var failed error
	for i := range n {
		if failed != nil {
			errs[i] = ErrUnsent
			continue
		}
		// Until the call's first request, or its return. Contexts of what it takes keep this, and no more.
		free := new(atomic.Pointer[gathering])
		free.Store(g)
		calls.Go(func() {
			defer func() { // also where a hook of the client calls runtime.Goexit
				if free.Swap(nil) != nil {
					g.begun <- errs[i]
				}
			}()
			errs[i] = f(context.WithValue(ctx, gatheringKey{}, free), i)
		})
		failed = <-g.begun
	}
	for to, b := range g.batches {
		if failed == nil {
			g.link.send(to, b)
			continue
		}
		b.fail(ErrUnsent)
		close(b.over)
	}
	calls.Wait()
	return errs
}

// gathering is what the calls of Gather have put in so far. It belongs to the one that begins.
type gathering struct {
	batches map[*redis.Client]*batch
	link    *Link      // of one of the requests
	begun   chan error // a call has made its first request, or has returned with this error
}

type gatheringKey struct{}

// join puts in a call's first request, unless its server is not known.
func (g *gathering) join(ctx context.Context, l *Link, to *redis.Client, r *Request) (b *batch) {
	defer func() { g.begun <- nil }()
	if to == nil {
		return nil
	}
	g.link = l
	if b = g.batches[to]; b == nil {
		b = newBatch(ctx) // that of the first is the pipeline's
		g.batches[to] = b
	}
	b.requests = append(b.requests, r)
	return b
}

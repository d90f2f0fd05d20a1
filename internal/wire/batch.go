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

// batching is the number of requests to a server that may be in flight before further requests share
// pipelines. If fewer goroutines share a pipeline, they begin to run in step, and client and server wait for
// each other in turn. In BenchmarkSharing of package rlock, shared pipelines are slower with 8 goroutines,
// make no difference with 16, and are faster with more.
const batching = 16

// The method join sends a batch at the latest when the batch has minBatch requests or, if that is more, a
// quarter of the requests in flight. With few large batches, client and server would wait for each other in
// turn. A batch of join has at most maxBatch requests, so that it keeps the server busy for no more than
// about a millisecond. The batches of Gather and Batch have no limit.
const (
	minBatch = batching / 2
	maxBatch = 100
)

// full reports whether a batch of n requests should be sent.
func (s *server) full(n int) bool {
	return n >= min(max(minBatch, int(s.inFlight.Load()/4)), maxBatch)
}

// A batch has requests that share a pipeline.
type batch struct {
	ctx      context.Context // the pipeline's context
	requests []*Request
	// done is closed when each request has a reply or an error, or when send does not send the batch.
	done chan struct{}
}

func newBatch(ctx context.Context) *batch { return &batch{ctx: ctx, done: make(chan struct{})} }

// fail gives an error to each request that was not answered.
func (b *batch) fail(err error) {
	for _, r := range b.requests {
		r.fail(err)
	}
}

// join puts a request into a batch with requests that other goroutines are about to send to the server. The
// sending of a batch does not wait for a reply or a timer. The goroutine that opens a batch lets other
// runnable goroutines run once, so that they can add requests, and then sends the batch. If another goroutine
// fills the batch earlier, that goroutine sends it. If the other goroutines compute for a long time, the
// batch is sent late, but sharing is still faster.
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
		s.open = nil // the batch takes no more requests
	}
	s.mu.Unlock()
	if opens {
		runtime.Gosched()
		s.mu.Lock()
		if sends = s.open == b; sends { // the batch was not full, so no other goroutine has sent it
			s.open = nil
		}
		s.mu.Unlock()
	}
	if sends {
		l.send(to, b)
	}
	return b
}

// send sends a batch in a new goroutine, because each goroutine that waits for a reply leaves when its own
// context ends. If the batch has a single request, send does not send it, because the goroutine of this
// request will do so (answer).
func (l *Link) send(to Client, b *batch) {
	if len(b.requests) == 1 {
		close(b.done)
		return
	}
	go l.pipeline(to, b)
}

// pipeline sends a batch in a pipeline. If the server does not know the script of a request, pipeline sends
// this request again with the full text. When pipeline returns, each request has a reply or an error, even if
// the client has panicked.
func (l *Link) pipeline(to Client, b *batch) {
	returned := false
	defer func() {
		defer close(b.done)
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
	exec(b.ctx, to, unknown) // unknown is usually empty
	returned = true
}

// exec sends requests in a pipeline. If a hook refused the pipeline, or the server refused a new connection,
// go-redis does not set the error of the requests. In this case exec sets it.
func exec(ctx context.Context, to Client, requests []*Request) {
	pipe := to.Pipeline()
	for _, r := range requests {
		_ = pipe.Process(ctx, r)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, r := range requests {
			r.fail(err)
		}
		if orphaned(err) { // sent in a pipeline, because pipelines may have connections of their own
			_ = pipe.Process(ctx, newParting())
			_, _ = pipe.Exec(ctx)
		}
	}
}

// Batch sends n requests in one pipeline of node, and then calls answer for each request, in order. node is
// the result of Server for all keys of the requests.
func (l *Link) Batch(
	ctx context.Context, node *redis.Client, n int, build func(i int) *Request,
	answer func(i int, reply string, err error),
) {
	b := newBatch(ctx)
	for i := range n {
		b.requests = append(b.requests, build(i))
	}
	at, sent, to := l.serverAt(node), time.Now(), l.client
	if node != nil {
		to = node
	}
	l.pipeline(to, b)
	var outcome error // nil if the server has carried out one of the requests
	for i, r := range b.requests {
		reply, err := l.answer(ctx, b, r)
		err = l.explained(ctx, at, sent, err)
		if i == 0 || err == nil {
			outcome = err
		}
		answer(i, reply, err)
	}
	if failing := l.returned(at, sent, outcome); !failing.IsZero() {
		l.logFailure(at, failing, outcome)
	}
}

// ErrUnsent is the error of a request that Gather did not send, or of a call that it did not make, because
// another call had failed.
var ErrUnsent = errors.New("lockline: not requested, because another lock cannot be acquired")

// Gather calls f n times, with each i from 0 to n-1, and each time in a new goroutine. It returns the errors
// of all calls when all calls have returned. The first requests of the calls are sent together, in one
// pipeline for each server and in the order of the calls. But a request whose server is not known is sent at
// once, alone. A call must make its first request with the context that it gets.
//
// A call begins when the previous call has made its first request or has returned. So a call must not wait
// for another call before its first request. If a call returns an error without a request, Gather makes no
// further calls, and does not send the pipelines. The requests in the pipelines and the calls that were not
// made fail with ErrUnsent.
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
		// free refers to the gathering until the call makes its first request or returns. The context of a
		// hold that the call acquires lives longer. So this context refers only to free, and not to the
		// gathering.
		free := new(atomic.Pointer[gathering])
		free.Store(g)
		calls.Go(func() {
			defer func() { // deferred, because a hook of the client may call runtime.Goexit
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
		close(b.done)
	}
	calls.Wait()
	return errs
}

// A gathering has the first requests of the calls of one Gather. Only the call that is beginning may use the
// gathering. Gather starts the next call after this one has added its request or has returned.
type gathering struct {
	batches map[*redis.Client]*batch
	link    *Link      // the Link of one of the requests
	begun   chan error // receives nil when a call makes its first request, or the error of a call without one
}

type gatheringKey struct{}

// join adds a call's first request to the batch of its server. It returns nil if the server is not known.
func (g *gathering) join(ctx context.Context, l *Link, to *redis.Client, r *Request) (b *batch) {
	defer func() { g.begun <- nil }()
	if to == nil {
		return nil
	}
	g.link = l
	if b = g.batches[to]; b == nil {
		b = newBatch(ctx) // the pipeline gets the context of its first request
		g.batches[to] = b
	}
	b.requests = append(b.requests, r)
	return b
}

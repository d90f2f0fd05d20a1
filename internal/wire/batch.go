package wire

import (
	"context"
	"runtime"

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

// add puts a request in, and returns its place.
func (b *batch) add(r Request, sc *Script) int {
	b.requests, b.scripts = append(b.requests, r), append(b.scripts, sc)
	return len(b.requests) - 1
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
	b := l.batches[to]
	opened := b == nil
	if opened {
		b = newBatch(context.Background())
		l.batches[to] = b
	}
	i := b.add(r, sc)
	sends := l.full(len(b.requests))
	if sends {
		delete(l.batches, to) // nothing more is put in
	}
	l.batching.Unlock()
	if opened {
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
	if pipe.Len() > 0 {
		exec(b.ctx, pipe)
	}
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
		sc, r := build(i)
		b.add(r, sc)
	}
	l.pipeline(to, b)
	for i := range n {
		reply, err := b.answer(ctx, l, i)
		answer(i, reply, l.options.Refusal(err))
	}
}

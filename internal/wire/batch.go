package wire

import (
	"context"
	"runtime"
	"time"

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
	requests []Request
	scripts  []*Script
	taken    bool          // by the goroutine that sends it: nothing more is put in
	over     chan struct{} // closed when each request has its answer or error
}

// together sends the request in one pipeline with those that other goroutines are about to send. No request
// waits for another's answer before it leaves, nor for time to pass. The goroutine that opens a batch lets
// the goroutines that are ready run, and then sends what they have put in.
func (l *Link) together(ctx context.Context, to *redis.Client, r Request, sc *Script) (string, error) {
	l.batching.Lock()
	b := l.batches[to]
	opened := b == nil
	if opened {
		b = &batch{over: make(chan struct{})}
		l.batches[to] = b
	}
	i := len(b.requests)
	b.requests, b.scripts = append(b.requests, r), append(b.scripts, sc)
	sends := l.full(len(b.requests))
	if sends {
		l.take(to, b)
	}
	l.batching.Unlock()
	if opened {
		began := l.age()
		runtime.Gosched()
		now := l.age()
		l.batching.Lock()
		if sends = !b.taken; sends {
			l.take(to, b)
			l.yielded(now-began, len(b.requests), now)
		}
		l.batching.Unlock()
	}
	switch {
	case !sends:
		<-b.over
	case len(b.requests) == 1:
		return l.alone(ctx, r, sc)
	default:
		l.send(to, b)
	}
	if r = b.requests[i]; moved(r.Err()) {
		return l.alone(ctx, r.again(), sc)
	}
	return r.Result()
}

// take has nothing more put into b. batching held.
func (l *Link) take(to *redis.Client, b *batch) {
	b.taken = true
	delete(l.batches, to)
}

// Goroutines that compute make it long until the opener runs again, and all in its batch wait. Where this has
// cost muchLost, requests go alone, each time for twice as long as the time before. Yields that cost nothing
// make up for it little by little.
const (
	quickYield = 3 * time.Millisecond   // less than a goroutine may run on
	quickEach  = 200 * time.Microsecond // more than a goroutine needs from an answer to its next request
	muchLost   = 20 * time.Millisecond
	minAlone   = time.Second
	maxAlone   = 10 * time.Second
)

// yielded learns how long a yield took that ended now, and how many requests were in the batch then. batching
// held.
func (l *Link) yielded(took time.Duration, requests int, now time.Duration) {
	over := took - quickYield - time.Duration(requests)*quickEach
	if over < 0 {
		l.timeLost -= l.timeLost / 64
		l.solitude -= l.solitude / 64
		return
	}
	if l.timeLost = min(l.timeLost+over, 2*muchLost); l.timeLost >= muchLost {
		l.solitude = min(max(2*l.solitude, minAlone), maxAlone)
		l.aloneUntil.Store(int64(now + l.solitude))
	}
}

// send serves several goroutines, so it has the context of none.
func (l *Link) send(to Server, b *batch) {
	defer close(b.over) // also where a hook of the client calls runtime.Goexit
	l.pipeline(context.Background(), to, b.requests, b.scripts)
}

// pipeline sends requests to one server together, and again in full those whose script the server does not
// know. Each has an answer or an error then, even if the client panics.
func (l *Link) pipeline(ctx context.Context, to Server, requests []Request, scripts []*Script) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil {
			p = "runtime.Goexit"
		}
		err := l.panicked(p)
		err.shared = len(requests) > 1
		for _, r := range requests {
			r.fail(err)
		}
	}()
	pipe := to.Pipeline()
	for _, r := range requests {
		_ = pipe.Process(ctx, r)
	}
	exec(ctx, pipe)
	pipe = to.Pipeline()
	for i, r := range requests {
		if noScript(r.Err()) {
			requests[i] = r.asEval(scripts[i])
			_ = pipe.Process(ctx, requests[i])
		}
	}
	if pipe.Len() > 0 {
		exec(ctx, pipe)
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
	ctx context.Context, to Server, n int, build func(i int) (*Script, Request),
	answer func(i int, reply string, err error),
) {
	requests, scripts := make([]Request, n), make([]*Script, n)
	for i := range requests {
		scripts[i], requests[i] = build(i)
	}
	l.pipeline(ctx, to, requests, scripts)
	for i, r := range requests {
		if moved(r.Err()) { // its slot has another home now: the cluster client follows
			reply, err := l.alone(ctx, r.again(), scripts[i])
			answer(i, reply, l.options.Refusal(err))
			continue
		}
		answer(i, r.Val(), l.options.Refusal(r.Err()))
	}
}

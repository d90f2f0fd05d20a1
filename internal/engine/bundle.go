package engine

import (
	"context"
	"errors"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// Batching is how many requests of a session may be under way before further ones
// share pipelines, by default. With fewer, goroutines that share a pipeline come to run in step,
// and client and server wait for each other in turn: it costs a quarter of the cycles at 8, is even at 16, and pays above.
const Batching = 16

// maxBundle keeps a bundle from keeping a server from others for long: a millisecond or so.
const maxBundle = 100

// bundle is requests of several goroutines to one server, which share a pipeline.
type bundle struct {
	requests []request
	scripts  []*Script
	over     chan struct{}
	done     bool // when over: it was sent, and each request has its answer or error
}

// errNotSent: the goroutine that sent a bundle did not survive it.
var errNotSent = errors.New("the client panicked while it sent the request")

// process sends a request and waits for its answer.
func (s *Session) process(ctx context.Context, r request, sc *Script) (string, error) {
	if sc == confirmScript {
		return s.replicate(ctx, r, sc)
	}
	defer s.underWay.Add(-1)
	if n := s.underWay.Add(1); s.Batching < 0 || n <= int64(s.Batching) {
		return s.alone(ctx, r, sc)
	}
	to := s.server(r.key())
	if s.clustered() && to == pipeliner(s.client) { // not known which: a pipeline would wait for the slowest
		return s.alone(ctx, r, sc)
	}
	return s.together(ctx, to, r, sc)
}

func (s *Session) alone(ctx context.Context, r request, sc *Script) (string, error) {
	_ = s.client.Process(ctx, r)
	if noScript(r.Err()) {
		r = r.asEval(sc)
		_ = s.client.Process(ctx, r)
	}
	return r.Result()
}

// together sends the request in one pipeline with those that others are about to send. None waits for another's answer
// before it leaves, nor for time to pass: whoever opens a bundle lets the goroutines run that are ready to, which they would before
// long, and then sends what they have put in.
func (s *Session) together(ctx context.Context, to pipeliner, r request, sc *Script) (string, error) {
	s.bundling.Lock()
	b := s.bundles[to]
	opened := b == nil
	if opened {
		b = &bundle{over: make(chan struct{})}
		s.bundles[to] = b
	}
	i := len(b.requests)
	b.requests, b.scripts = append(b.requests, r), append(b.scripts, sc)
	if len(b.requests) == maxBundle {
		delete(s.bundles, to)
	}
	s.bundling.Unlock()
	if opened {
		runtime.Gosched()
		s.bundling.Lock()
		if s.bundles[to] == b {
			delete(s.bundles, to)
		}
		s.bundling.Unlock()
		if len(b.requests) == 1 {
			return s.alone(ctx, r, sc)
		}
		b.send(to)
	} else {
		<-b.over
	}
	if !b.done {
		return "", errNotSent
	}
	if r = b.requests[i]; moved(r.Err()) {
		return s.alone(ctx, r.again(), sc)
	}
	return r.Result()
}

// send is nobody's in particular, so it has no context of theirs.
func (b *bundle) send(to pipeliner) {
	defer close(b.over) // also where a hook of the client panics
	pipeline(context.Background(), to, b.requests, b.scripts)
	b.done = true
}

// pipeline sends requests to one server together, and again in full those whose script the server does not know.
func pipeline(ctx context.Context, to pipeliner, requests []request, scripts []*Script) {
	pipe := to.Pipeline()
	for _, r := range requests {
		_ = pipe.Process(ctx, r)
	}
	_, _ = pipe.Exec(ctx)
	pipe = to.Pipeline()
	for i, r := range requests {
		if noScript(r.Err()) {
			requests[i] = r.asEval(scripts[i])
			_ = pipe.Process(ctx, requests[i])
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}

// batch sends many requests to one server in one pipeline and reports each reply.
func (s *Session) batch(ctx context.Context, to pipeliner, n int, build func(i int) (*Script, request), answer func(i int, reply string, err error)) {
	requests, scripts := make([]request, n), make([]*Script, n)
	for i := range requests {
		scripts[i], requests[i] = build(i)
	}
	pipeline(ctx, to, requests, scripts)
	for i, r := range requests {
		if moved(r.Err()) { // its slot has another home now: the cluster client follows
			reply, err := s.alone(ctx, r.again(), scripts[i])
			answer(i, reply, err)
			continue
		}
		answer(i, r.Val(), r.Err())
	}
}

// key is the lock's: the first of them.
func (r request) key() string { return r.Args()[3].(string) }

// again is the same request, unsent.
func (r request) again() request {
	return request{redis.NewStringCmd(context.Background(), r.Args()...)}
}

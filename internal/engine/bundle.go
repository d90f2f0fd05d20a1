package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batching is how many requests of a session may be under way before further ones
// share pipelines, by default. With fewer, goroutines that share a pipeline come to run in step,
// and client and server wait for each other in turn: it costs at 8, is even at 16, and pays above (BenchmarkSharing of rlock).
const Batching = 16

// maxBundle keeps a bundle from keeping a server from others for long: a millisecond or so.
const maxBundle = 100

// bundle is requests of several goroutines to one server, which share a pipeline.
type bundle struct {
	requests []request
	scripts  []*Script
	taken    bool          // by who sends it: nothing more is put in
	over     chan struct{} // closed when each request has its answer or error
}

// process sends a request and waits for its answer. again: it was sent before, perhaps with others, whose faults it must
// not share each time.
func (s *Session) process(ctx context.Context, r request, sc *Script, again bool) (string, error) {
	if sc == confirmScript {
		return s.replicate(ctx, r, sc)
	}
	defer s.underWay.Add(-1)
	if n := s.underWay.Add(1); again || s.Batching < 0 || n <= int64(s.Batching) || s.age() < time.Duration(s.aloneUntil.Load()) {
		return s.alone(ctx, r, sc)
	}
	if to, one := s.server(r.key()).(*redis.Client); one { // a cluster's pipeline would wait for its slowest server
		return s.together(ctx, to, r, sc)
	}
	return s.alone(ctx, r, sc)
}

func (s *Session) alone(ctx context.Context, r request, sc *Script) (reply string, err error) {
	defer s.survive(&err)
	_ = s.client.Process(ctx, r)
	if noScript(r.Err()) {
		r = r.asEval(sc)
		_ = s.client.Process(ctx, r)
	}
	return r.Result()
}

// together sends the request in one pipeline with those that others are about to send. None waits for another's answer
// before it leaves, nor for time to pass: whoever opens a bundle lets the goroutines run that are ready to, and then
// sends what they have put in.
func (s *Session) together(ctx context.Context, to *redis.Client, r request, sc *Script) (string, error) {
	s.bundling.Lock()
	b := s.bundles[to]
	opened := b == nil
	if opened {
		b = &bundle{over: make(chan struct{})}
		s.bundles[to] = b
	}
	i := len(b.requests)
	b.requests, b.scripts = append(b.requests, r), append(b.scripts, sc)
	sends := len(b.requests) == maxBundle
	if sends {
		s.take(to, b)
	}
	s.bundling.Unlock()
	if opened {
		began := s.age()
		runtime.Gosched()
		now := s.age()
		s.bundling.Lock()
		if sends = !b.taken; sends {
			s.take(to, b)
			s.yielded(now-began, len(b.requests), now)
		}
		s.bundling.Unlock()
	}
	switch {
	case !sends:
		<-b.over
	case len(b.requests) == 1:
		return s.alone(ctx, r, sc)
	default:
		s.send(to, b)
	}
	if r = b.requests[i]; moved(r.Err()) {
		return s.alone(ctx, r.again(), sc)
	}
	return r.Result()
}

// take has nothing more put into b. bundling held.
func (s *Session) take(to *redis.Client, b *bundle) {
	b.taken = true
	delete(s.bundles, to)
}

// Goroutines that compute make it long until the opener runs again, and all in its bundle wait. Where this has cost
// muchLost, requests go alone, each time for twice as long as the time before. Yields that cost nothing make up for it little by little.
const (
	quickYield = 3 * time.Millisecond   // less than a goroutine may run on
	quickEach  = 200 * time.Microsecond // more than a goroutine needs from an answer to its next request
	muchLost   = 20 * time.Millisecond
	minAlone   = time.Second
	maxAlone   = 10 * time.Second
)

// yielded learns how long a yield took that ended now, and how many requests were in the bundle then. bundling held.
func (s *Session) yielded(took time.Duration, requests int, now time.Duration) {
	over := took - quickYield - time.Duration(requests)*quickEach
	if over < 0 {
		s.timeLost -= s.timeLost / 64
		s.solitude -= s.solitude / 64
		return
	}
	if s.timeLost = min(s.timeLost+over, 2*muchLost); s.timeLost >= muchLost {
		s.solitude = min(max(2*s.solitude, minAlone), maxAlone)
		s.aloneUntil.Store(int64(now + s.solitude))
	}
}

// send is nobody's in particular, so it has no context of theirs.
func (s *Session) send(to pipeliner, b *bundle) {
	defer close(b.over) // also where a hook of the client calls runtime.Goexit
	s.pipeline(context.Background(), to, b.requests, b.scripts)
}

// pipeline sends requests to one server together, and again in full those whose script the server does not know. Each
// has an answer or an error then, even if the client panics.
func (s *Session) pipeline(ctx context.Context, to pipeliner, requests []request, scripts []*Script) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil {
			p = "runtime.Goexit"
		}
		err := s.panicked(p)
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

// exec sends a pipeline. Where go-redis tells nobody's command why it was not sent (a hook refused it, or the server a
// new connection), each is told.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	commands, err := pipe.Exec(ctx)
	for _, c := range commands {
		if r, ok := c.(request); ok && err != nil {
			r.fail(err)
		}
	}
}

// fail gives the request an error if it was not answered. No script answers with nothing.
func (r request) fail(err error) {
	if r.Err() == nil && r.Val() == "" {
		r.SetErr(err)
	}
}

// batch sends many requests to one server in one pipeline and reports each reply.
func (s *Session) batch(ctx context.Context, to pipeliner, n int, build func(i int) (*Script, request), answer func(i int, reply string, err error)) {
	requests, scripts := make([]request, n), make([]*Script, n)
	for i := range requests {
		scripts[i], requests[i] = build(i)
	}
	s.pipeline(ctx, to, requests, scripts)
	for i, r := range requests {
		if moved(r.Err()) { // its slot has another home now: the cluster client follows
			reply, err := s.alone(ctx, r.again(), scripts[i])
			answer(i, reply, refusal(err))
			continue
		}
		answer(i, r.Val(), refusal(r.Err()))
	}
}

// key is the lock's: the first of them.
func (r request) key() string { return r.Args()[3].(string) }

// again is the same request, unsent.
func (r request) again() request {
	return request{redis.NewStringCmd(context.Background(), r.Args()...)}
}

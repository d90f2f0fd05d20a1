package wire

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The goroutine that wants an answer sends its request: to wake another one for it takes longer than the
// request. It is not free to leave then until go-redis returns, which ends a read after ReadTimeout, or by
// the context's deadline if the client has ContextTimeoutEnabled. So while a server is silent, requests have
// goroutines of their own, and a call returns when its context ends. A server is silent
//
//   - until its first answer;
//   - from a request that it did not answer, until it answers another one;
//   - while requests are under way of which it has answered none for slow.
//
// Only a call that is under way when a server falls silent returns later than its context ends. The masters
// of a Cluster are judged one by one.
const slow = 100 * time.Millisecond

// pulse is what is known of whether a server answers.
type pulse struct {
	answers  atomic.Bool  // it has, and has left no request without an answer since
	underWay atomic.Int64 // requests
	// age of the link at its last answer, or at which the first of those under way was sent.
	since   atomic.Int64
	failing atomic.Pointer[outage] // it carries no request out, though it may answer; nil: it does
}

// outage is since when a server carries no request out, and how the last one failed.
type outage struct {
	since time.Time
	err   error
}

// errSilent is the trouble with a server that has not answered for a while.
var errSilent = errors.New("it has not answered for a while")

// Silent reports whether the server of a key is silent. It may ask a Cluster which server that is.
func (l *Link) Silent(ctx context.Context, key string) bool {
	p := l.pulse(ctx, key)
	return !p.answers.Load() || l.stands(p)
}

// stands reports whether requests to a server are under way, and it has answered none for a while.
func (l *Link) stands(p *pulse) bool {
	return p.underWay.Load() > 0 && l.age()-time.Duration(p.since.Load()) > slow
}

// Trouble is why the server of a key is known to carry no request out, or not to answer; nil if it is not.
func (l *Link) Trouble(ctx context.Context, key string) error {
	p := l.pulse(ctx, key)
	if f := p.failing.Load(); f != nil {
		return f.err
	}
	if l.stands(p) {
		return errSilent
	}
	return nil
}

// pulse is the pulse of the server of a key.
func (l *Link) pulse(ctx context.Context, key string) *pulse {
	if l.Single() || !l.whole.answers.Load() { // before its first answer a Cluster may not know its servers
		return &l.whole
	}
	node, err := l.master(ctx, key)
	if err != nil {
		return &l.whole
	}
	addr := node.Options().Addr
	if p, ok := l.nodes.Load(addr); ok {
		return p.(*pulse)
	}
	p, _ := l.nodes.LoadOrStore(addr, &pulse{})
	return p.(*pulse)
}

func (l *Link) sends(p *pulse) {
	if p.underWay.Load() == 0 { // before it counts: else the server looks silent since its last answer
		p.since.Store(int64(l.age()))
	}
	if p.underWay.Add(1) == 1 {
		p.since.Store(int64(l.age()))
	}
}

// returned learns how a request ended, and says since when none is carried out; zero: this one was.
func (l *Link) returned(p *pulse, sent time.Time, err error) time.Time {
	defer p.underWay.Add(-1)
	if errors.Is(err, ErrUnsent) {
		return time.Time{}
	}
	if err == nil || errors.As(err, new(redis.Error)) {
		p.since.Store(int64(l.age()))
		p.answers.Store(true)
		l.whole.answers.Store(true)
		l.answered.Store(true)
	} else if !errors.Is(err, context.Canceled) { // it may not have been sent
		p.answers.Store(false)
	}
	last := p.failing.Load()
	if err == nil {
		if last != nil {
			p.failing.Store(nil)
		}
		return time.Time{}
	}
	f := &outage{sent, err}
	if last != nil {
		f.since = last.since
		if errors.Is(err, context.Canceled) { // which says less
			f.err = last.err
		}
	}
	p.failing.Store(f)
	return f.since
}

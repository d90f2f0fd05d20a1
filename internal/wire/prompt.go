package wire

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// go-redis does not interrupt a read when its context ends. So a request whose caller may leave has a goroutine of its own. If the server is near, waking the
// threads for that takes longer than the request. So where a server answers promptly, the first copy of a request is sent in its
// caller's goroutine, through a copy of the client that waits for fuse at most.
const (
	fuse     = 25 * time.Millisecond // for which a caller cannot leave
	promptly = fuse / 5              // an answer that takes longer is not prompt
	mistrust = time.Second           // for which requests have goroutines after one that was not answered
)

// promptness is whether a server answers promptly, and the copy of its client. The sessions of one client share it.
//
// A copy has none of the client's hooks. So prompt requests pass through the client and all its hooks, the last of which is this: it hands them to the copy. Once
// another hook comes behind it, which that would leave out, no request is prompt any more.
type promptness struct {
	born   time.Time
	prompt atomic.Bool  // the last answer was
	from   atomic.Int64 // age from which on requests may be
	asked  atomic.Int64 // how often go-redis has asked for the functions of this hook
	copy   atomic.Pointer[redis.Client]

	making sync.Mutex // makes the copy once; a leaf
}

// clients are those in use, each with its promptness. Both are weak pointers: the client keeps its promptness, among its hooks.
var clients sync.Map

// promptnessOf is that of a client; nil of a Cluster's, whose hooks are not its servers'.
func promptnessOf(c Client) *promptness {
	client, one := c.(*redis.Client)
	if !one {
		return nil
	}
	p, key := &promptness{born: time.Now()}, weak.Make(client)
	if other, known := clients.LoadOrStore(key, weak.Make(p)); known {
		return other.(weak.Pointer[promptness]).Value()
	}
	runtime.AddCleanup(client, func(key weak.Pointer[redis.Client]) { clients.Delete(key) }, key)
	client.AddHook(p)
	return p
}

// promptRequest is a request that is to be sent in its caller's goroutine, or not at all.
type promptRequest struct{ Request }

// errNotPrompt is the error of one that was not sent.
var errNotPrompt = errors.New("no request is sent in its caller's goroutine")

func (p *promptness) DialHook(redis.DialHook) redis.DialHook { return nil }

func (p *promptness) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return nil
}

// ProcessHook is called with nothing behind this hook when it is added, and again whenever another hook is, or all are copied.
func (p *promptness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	last := p.asked.Add(1) == 1
	return func(ctx context.Context, cmd redis.Cmder) error {
		r, prompt := cmd.(promptRequest)
		switch {
		case !prompt:
			return next(ctx, cmd)
		case !last:
			p.from.Store(math.MaxInt64)
			return errNotPrompt
		}
		return p.copy.Load().Process(ctx, r.Request)
	}
}

func (p *promptness) age() time.Duration { return time.Since(p.born) }

// answered notes how a request ended that was sent alone.
func (p *promptness) answered(sent time.Time, err *error) {
	if p == nil {
		return
	}
	p.prompt.Store(*err == nil && time.Since(sent) <= promptly)
	if from, then := p.from.Load(), int64(p.age()+mistrust); *err != nil && from < then {
		p.from.CompareAndSwap(from, then)
	}
}

// ready reports whether a request may be prompt now.
func (p *promptness) ready(client Client) bool {
	if p == nil || !p.prompt.Load() || p.age() < time.Duration(p.from.Load()) {
		return false
	}
	return p.copy.Load() != nil || p.makeCopy(client.(*redis.Client))
}

// makeCopy reports whether there is one without hooks.
func (p *promptness) makeCopy(client *redis.Client) bool {
	p.making.Lock()
	defer p.making.Unlock()
	if p.copy.Load() != nil {
		return true
	}
	wait := fuse
	if t := client.Options().ReadTimeout; t > 0 {
		wait = min(wait, t)
	}
	asked := p.asked.Load()
	c := client.WithTimeout(wait)
	if p.asked.Load() != asked { // it may have hooks, which would be called twice; or a connection was opened meanwhile
		p.from.Store(int64(p.age() + mistrust))
		return false
	}
	p.copy.Store(c)
	return true
}

// Promptly sends one copy of a request in the caller's goroutine, if the server is known to answer promptly. It blocks for fuse at
// most, or while ctx lasts where there is no connection. ok: that settles the request. Else Call is to send it again;
// Outcome.Unanswered says whether this copy may have run.
func (l *Link) Promptly(ctx context.Context, sc *Script, c Copier) (o Outcome, ok bool) {
	if !l.Prompt(ctx, sc) {
		return o, false
	}
	now := time.Now()
	return l.SendPromptly(ctx, sc, c.Request(now), now)
}

// Prompt reports whether Promptly would send a request. Others may come between.
func (l *Link) Prompt(ctx context.Context, sc *Script) bool {
	return l.prompt.ready(l.client) && !sc.confirmed && ctx.Err() == nil && !l.crowded(l.underWay.Load()+1)
}

// SendPromptly is Promptly where Prompt is true, for a request that was made at sent: one that has no Copier on the heap.
func (l *Link) SendPromptly(ctx context.Context, sc *Script, r Request, sent time.Time) (o Outcome, ok bool) {
	defer l.underWay.Add(-1)
	if n := l.underWay.Add(1); l.crowded(n) {
		return o, false
	}
	o.Sent = sent
	o.Reply, o.Err = l.alone(ctx, r, sc, true)
	if errors.Is(o.Err, errNotPrompt) {
		return Outcome{}, false
	}
	ok = !l.failed(&o)
	return o, ok
}

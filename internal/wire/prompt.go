package wire

import (
	"context"
	"errors"
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

// nearness is what is known of how promptly the servers of a client answer. The sessions of one client share it.
type nearness interface {
	// ready reports whether a request may be prompt now, as far as that can be known before it is made.
	ready() bool
	// reaches reports whether one for this key may be.
	reaches(l *Link, key string) bool
	// answered notes how a request ended that was sent alone.
	answered(l *Link, key string, sent time.Time, err error)
}

// nearnessOf is that of a client, which gets a hook for it.
func nearnessOf(c Client) nearness {
	switch c := c.(type) {
	case *redis.Client:
		return promptnessOf(c)
	case *redis.ClusterClient:
		return sharedBy(c, func() *cluster {
			n := &cluster{}
			n.send = func(ctx context.Context, r promptRequest) error { return n.lead(ctx, c, r) }
			c.AddHook(&n.lastHook)
			return n
		})
	default: // what is behind it is not known
		return unknown{}
	}
}

type unknown struct{}

func (unknown) ready() bool                              { return false }
func (unknown) reaches(*Link, string) bool               { return false }
func (unknown) answered(*Link, string, time.Time, error) {}

// clients are those in use, each with its nearness. Both are weak pointers: the client keeps its nearness, among its hooks.
var (
	clients sync.Map
	joining sync.Mutex // of a client, once
)

// sharedBy is the nearness that the sessions of a client share. The first of them makes it.
func sharedBy[C, N any](client *C, join func() *N) *N {
	key := weak.Make(client)
	if n, known := clients.Load(key); known {
		return n.(weak.Pointer[N]).Value()
	}
	joining.Lock()
	defer joining.Unlock()
	if n, known := clients.Load(key); known {
		return n.(weak.Pointer[N]).Value()
	}
	n := join()
	clients.Store(key, weak.Make(n))
	runtime.AddCleanup(client, func(key weak.Pointer[C]) { clients.Delete(key) }, key)
	return n
}

// promptRequest is a request that is to be sent in its caller's goroutine, or not at all.
type promptRequest struct{ Request }

// errNotPrompt is the error of one that was not sent.
var errNotPrompt = errors.New("no request is sent in its caller's goroutine")

// lastHook is the last of a client's hooks, and takes prompt requests out of them. A hook that comes behind it would be left out. From then
// on no request of this client is prompt.
type lastHook struct {
	send   func(context.Context, promptRequest) error
	asked  atomic.Int64 // how often go-redis has asked for the functions of this hook
	behind atomic.Bool  // another hook is
}

func (h *lastHook) DialHook(redis.DialHook) redis.DialHook { return nil }

func (h *lastHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return nil
}

// ProcessHook is called with nothing behind this hook when it is added, and again whenever another hook is, or all are copied.
func (h *lastHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	last := h.asked.Add(1) == 1
	return func(ctx context.Context, cmd redis.Cmder) error {
		r, prompt := cmd.(promptRequest)
		switch {
		case !prompt:
			return next(ctx, cmd)
		case !last:
			h.behind.Store(true)
			return errNotPrompt
		}
		return h.send(ctx, r)
	}
}

// promptness is whether a server answers promptly, and the copy of its client. A copy has none of the client's hooks. So prompt requests
// pass through the client and all its hooks, the last of which hands them to the copy.
type promptness struct {
	lastHook
	client *redis.Client
	born   time.Time
	prompt atomic.Bool  // the last answer was
	from   atomic.Int64 // age from which on requests may be
	copy   atomic.Pointer[redis.Client]

	making sync.Mutex // makes the copy once; a leaf
}

func promptnessOf(client *redis.Client) *promptness {
	return sharedBy(client, func() *promptness {
		p := &promptness{client: client, born: time.Now()}
		p.send = func(ctx context.Context, r promptRequest) error { return p.copy.Load().Process(ctx, r.Request) }
		client.AddHook(&p.lastHook)
		return p
	})
}

func (p *promptness) age() time.Duration { return time.Since(p.born) }

func (p *promptness) answered(_ *Link, _ string, sent time.Time, err error) {
	p.prompt.Store(err == nil && time.Since(sent) <= promptly)
	if from, then := p.from.Load(), int64(p.age()+mistrust); err != nil && from < then {
		p.from.CompareAndSwap(from, then)
	}
}

func (p *promptness) ready() bool {
	if !p.prompt.Load() || p.behind.Load() || p.age() < time.Duration(p.from.Load()) {
		return false
	}
	return p.copy.Load() != nil || p.makeCopy()
}

func (p *promptness) reaches(*Link, string) bool { return true }

// makeCopy reports whether there is one without hooks.
func (p *promptness) makeCopy() bool {
	p.making.Lock()
	defer p.making.Unlock()
	if p.copy.Load() != nil {
		return true
	}
	wait := fuse
	if t := p.client.Options().ReadTimeout; t > 0 {
		wait = min(wait, t)
	}
	asked := p.asked.Load()
	c := p.client.WithTimeout(wait)
	if p.asked.Load() != asked { // it may have hooks, which would be called twice; or a connection was opened meanwhile
		p.from.Store(int64(p.age() + mistrust))
		return false
	}
	p.copy.Store(c)
	return true
}

// cluster leads prompt requests through the hooks of a Cluster's client, and then of its master's, to the copy of that. Where a master does not
// have the key any more, the request was not prompt: the client itself follows redirections.
type cluster struct {
	lastHook
	prompt atomic.Bool // the last answer of any master was
}

func (c *cluster) ready() bool { return c.prompt.Load() && !c.behind.Load() }

func (c *cluster) reaches(l *Link, key string) bool {
	master, one := l.Server(key).(*redis.Client)
	return one && promptnessOf(master).ready()
}

func (c *cluster) answered(l *Link, key string, sent time.Time, err error) {
	c.prompt.Store(err == nil && time.Since(sent) <= promptly)
	if master, one := l.Server(key).(*redis.Client); one {
		promptnessOf(master).answered(l, key, sent, err)
	}
}

// lead sends a request on its way to the master, which may be another one than at first.
func (c *cluster) lead(ctx context.Context, client *redis.ClusterClient, r promptRequest) error {
	master, err := client.MasterForKey(ctx, r.key())
	if err != nil || !promptnessOf(master).ready() {
		return errNotPrompt
	}
	return master.Process(ctx, r)
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
	return l.near.ready() && !sc.confirmed && ctx.Err() == nil && !l.crowded(l.underWay.Load()+1)
}

// SendPromptly is Promptly where Prompt is true, for a request that was made at sent: one that has no Copier on the heap.
func (l *Link) SendPromptly(ctx context.Context, sc *Script, r Request, sent time.Time) (o Outcome, ok bool) {
	defer l.underWay.Add(-1)
	if n := l.underWay.Add(1); l.crowded(n) || !l.near.reaches(l, r.key()) {
		return o, false
	}
	o.Sent = sent
	o.Reply, o.Err = l.alone(ctx, r, sc, true)
	if errors.Is(o.Err, errNotPrompt) || errors.Is(o.Err, redis.ErrClosed) { // a Cluster closes the clients of nodes that leave it
		return Outcome{}, false
	}
	ok = !l.failed(&o)
	return o, ok
}

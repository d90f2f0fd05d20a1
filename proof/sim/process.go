package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/proof/simnet"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// A process has a session on each server.
type process struct {
	name     string
	hosts    []*simnet.Host
	clients  []*redis.Client
	sessions []*rlock.Session
	quorum   *multilock.Quorum // quorum of all sessions; nil: no lock is a RedLock
	crashed  atomic.Bool
	closing  atomic.Bool
	still    atomic.Int64 // time until which its goroutines do nothing, in ns since 1970
}

func (p *process) over() bool { return p.crashed.Load() || p.closing.Load() }

func (w *world) boot(name string) *process {
	p := &process{name: name}
	for i, s := range w.servers {
		h := s.host(name)
		rdb := redis.NewClient(&redis.Options{
			Addr:            fmt.Sprintf("127.0.0.1:%d", 1+i), // only a name, because Dialer connects
			Dialer:          h.Dial,
			DialTimeout:     300 * time.Millisecond,
			ReadTimeout:     300 * time.Millisecond,
			DialerRetries:   1,
			DisableIdentity: true,
			Protocol:        2, // protocol 2 needs no request at the start of a connection
			ReadBufferSize:  4096,
			// The buffer is so large that each write has whole requests, even of a long pipeline.
			WriteBufferSize: 1 << 20,
		})
		rdb.AddHook(ways{w})
		options := []rlock.SessionOption{rlock.WithLogger(quiet), rlock.WithWatchdogTimeout(lease),
			rlock.WithWaiterTimeout(liveness), rlock.WithHandover(w.turn), rlock.WithLinger(w.linger)}
		session, err := rlock.NewSession(rdb, options...)
		if err != nil {
			panic(err)
		}
		testlock.Batching(session, w.batching)
		p.hosts, p.clients, p.sessions = append(p.hosts, h), append(p.clients, rdb),
			append(p.sessions, session)
		w.say("%s is %s on server %d", name, session.ID()[:4], i)
	}
	if w.redlock() {
		var err error
		if p.quorum, err = multilock.NewQuorum(p.sessions); err != nil {
			panic(err)
		}
	}
	return p
}

// ways counts the requests that are sent in their callers' goroutines, and the lock requests that share a
// pipeline.
type ways struct{ w *world }

func (ways) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c ways) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		digest, _ := cmd.Args()[1].(string)
		if name := testlock.Script(digest); name != "" && called() {
			c.w.counts.Add("sent by its caller: " + name)
		}
		return next(ctx, cmd)
	}
}

// called reports whether the present goroutine is the goroutine of an actor.
func called() bool {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, ".(*world).act") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (c ways) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			digest, _ := cmd.Args()[1].(string)
			if name := testlock.Script(digest); name == "lock" || name == "acquire" {
				c.w.counts.Add("locks in a pipeline")
			}
		}
		return next(ctx, cmds)
	}
}

// An operated is a lock with the methods for operators.
type operated interface {
	rlock.Locker
	Inspect(ctx context.Context) (rlock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
	ForceUnlockToken(ctx context.Context, token int64) (bool, error)
}

// mutex returns a lock for a process.
func (p *process) mutex(l *lock) operated {
	switch l.kind {
	case 'r':
		return rlock.New(p.sessions[l.on[0].number], l.name)
	case 'f':
		return fairlock.New(p.sessions[l.on[0].number], l.name)
	case 'j':
		return redisson.New(p.sessions[l.on[0].number], l.name)
	}
	return p.quorum.New(l.name)
}

// afflict lets a process crash, closes it, disturbs its connections, or does nothing. It returns false if the
// process has ended, so that another process takes its place.
func (w *world) afflict(p *process, rnd *rand.Rand, harsh float64) (alive bool) {
	switch r := rnd.Float64(); {
	case r < 0.15:
		w.say("%s crashes", p.name)
		w.counts.Add("crashes")
		p.crash()
		go func() { // a real crash would end the goroutines at once, but here they need a Close
			w.sleep(10 * time.Second)
			p.shut()
		}()
		return false
	case r < 0.25:
		w.say("%s closes", p.name)
		w.close(p)
		return false
	}
	for _, h := range p.hosts {
		switch r := rnd.Float64(); {
		case r < 0.25:
			w.say("%s: all its connections to a server are cut", p.name)
			w.counts.Add("faults: all connections cut")
			h.Cut()
		case r < 0.25+harsh:
			d := upTo(rnd, time.Second, 2*time.Second, 6*time.Second)
			ways := [][]simnet.Direction{{simnet.Up, simnet.Down}, {simnet.Up}, {simnet.Down}}[rnd.IntN(3)]
			w.say("%s is in a black hole for %v, directions %d (0 to the server)", p.name, d, ways)
			if w.counts.Add("faults: black holes"); len(ways) == 1 {
				w.counts.Add("faults: black holes of one direction")
			}
			h.BlackHole(d, ways...)
		}
	}
	return true
}

// crash cuts the process off from the network for good.
func (p *process) crash() {
	p.crashed.Store(true)
	for _, h := range p.hosts {
		h.Kill()
	}
}

func (p *process) shut() (err error) {
	for i, s := range p.sessions {
		if e := s.Close(); e != nil {
			err = e
		}
		_ = p.clients[i].Close()
	}
	return err
}

// close closes the sessions of a process, and checks that this does not take long.
func (w *world) close(p *process) {
	p.closing.Store(true)
	start := time.Now()
	err := p.shut()
	took := time.Since(start)
	w.counts.Add("closes")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("%s: closed in %v: %v", p.name, took, err)
	if p.crashed.Load() {
		return
	}
	if took > time.Duration(len(p.sessions))*7*time.Second {
		w.fail("%s: Close took %v", p.name, took)
	}
	if err != nil && w.well() {
		w.fail("%s: Close: %v", p.name, err)
	}
}

// force takes a lock from its holder, or only from a holder that was seen some time before, as an operator
// would.
func (w *world) force(p *process, l *lock, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	if l, ok := l.rules.(*permits); ok {
		l.force(ctx, p, rnd)
		return
	}
	m := p.mutex(l)
	if rnd.IntN(2) == 0 {
		w.say("%s: forces %s", p.name, l.name)
		held, err := m.ForceUnlock(ctx)
		w.say("%s: forced %s: %v, %v", p.name, l.name, held, err)
		return
	}
	st, err := m.Inspect(ctx)
	if err != nil || !st.Held || st.Token == 0 {
		return
	}
	w.sleep(upTo(rnd, 20*time.Millisecond, 300*time.Millisecond))
	w.say("%s: forces %s from %d", p.name, l.name, st.Token)
	held, err := m.ForceUnlockToken(ctx, st.Token)
	w.say("%s: forced %s from %d: %v, %v", p.name, l.name, st.Token, held, err)
}

package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// Several locks of one session can be taken by one request, all or none, where
// their scripts and the server allow it. One acquisition leads: it stands, asks
// and waits for its own lock as ever, and what it asks for includes the locks of
// its company. While it waits, it occupies nothing of the company.

// company are the locks that an acquisition takes along.
type company struct {
	all   []companion
	locks []*lock      // of all; does not change, so that others may look
	in    []*companion // whose root slots are occupied, for the request under way
	// which lock its reply speaks of: the leader's is the first
	which int
}

func (c *company) size() int {
	if c == nil {
		return 0
	}
	return len(c.locks)
}

// companion is one of them. Its attempt is the leader's.
type companion struct {
	acquisition
	beside bool  // no request names it: it comes along only where all is handed over in memory
	asked  bool  // a request of the present attempt named it
	got    *Hold // what came of it
}

// MaxSeveral bounds how many locks are asked of one script, which keeps Redis from
// serving others.
const MaxSeveral = 100

type groupID struct {
	s     *Session
	kind  string
	tag   string
	lease time.Duration
}

// Group is equal for Mutexes that one request can take together; nil for one that is
// always asked for alone.
func (m *Mutex) Group() any {
	g := m.s.group(m.p, m.keys)
	if g == nil {
		return nil
	}
	g.lease = m.cfg.Lease
	return *g
}

// group is equal for locks that one script can serve together.
func (s *Session) group(p *Protocol, k *Keys) *groupID {
	if p.LockSeveral == nil || s.Redisson {
		return nil
	}
	g := &groupID{s: s, kind: p.Kind}
	if !s.link.Single() {
		g.tag = hashTag(k.lock())
	}
	return g
}

// hashTag is the part of a key that decides its cluster slot.
func hashTag(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(tag, "}"); ok && tag != "" {
		return tag
	}
	return key
}

type lockID struct {
	s    *Session
	lock string
}

// ID is equal for Mutexes that are one lock in one session.
func (m *Mutex) ID() any { return lockID{m.s, m.keys.lock()} }

// Check says what is wrong with the Mutex, whatever it is used for.
func (m *Mutex) Check() error { return m.check(context.Background()) }

// Owner is the owner field under which Redis knows a hold of one lock.
func (hd *Hold) Owner() string {
	if hd.valid() {
		if e, ok := hd.of.(*entry); ok {
			owner, _ := e.st.owner.(string)
			return owner
		}
	}
	return ""
}

// HandsOn: the session may choose who of its own gets the lock next.
func (m *Mutex) HandsOn() bool { return !m.p.queues() && m.cfg.Lease == 0 }

// AcquireWith is Acquire, and takes others of the same Group along by the same
// request: all or none. It returns their holds behind its own; nil for one that
// cannot come along because ctx holds it already: it must be acquired by itself. If one of them is
// taken, the error is a *LockedError of its name, at once.
//
// Behind these it returns the holds of those beside, of any group but all such as HandsOn says, if it was handed
// all in memory, and else nil or nothing.
func (m *Mutex) AcquireWith(ctx context.Context, cfg Config, try bool, with, beside []*Mutex) (context.Context, []*Hold, error) {
	if err := m.check(ctx); err != nil {
		return ctx, nil, err
	}
	c := &company{all: make([]companion, len(with)+len(beside))}
	as := OwnerOf(ctx)
	for i, w := range slices.Concat(with, beside) {
		l, err := w.s.enter(w.keys, w.p)
		if err != nil && i >= len(with) { // its own acquisition will say so
			c.all, c.locks = c.all[:len(with)], c.locks[:len(with)]
			break
		}
		if err != nil {
			return ctx, nil, &nameError{name: w.keys.Name, err: err}
		}
		if i < len(with) {
			defer l.leave()
		} else { // its session need not wait for who waits in another one: what is handed over is counted by itself
			defer l.drop()
			w.s.end()
		}
		c.locks = append(c.locks, l)
		c.all[i] = companion{acquisition: acquisition{ctx: ctx, l: l, cfg: cfg, as: as, begun: time.Now()}, beside: i >= len(with)}
	}
	h, err := m.acquire(ctx, cfg, try, c)
	if err != nil {
		return ctx, nil, err
	}
	holds := []*Hold{h.handle().returned()}
	for i := range c.all {
		hd := c.all[i].got
		if hd != nil {
			hd.returned()
		}
		holds = append(holds, hd)
	}
	return holds[0].context(), holds, nil
}

// gather occupies the root slots of the company, without waiting. Its error names one
// that is taken in this process.
func (c *company) gather() error {
	if c == nil || c.in != nil {
		return nil
	}
	for i := range c.all {
		m := &c.all[i]
		if m.beside {
			continue
		}
		switch in, err := m.occupy(); {
		case err != nil:
			return err
		case in:
			c.in = append(c.in, m)
		}
	}
	for _, m := range c.in {
		m.asked = true
	}
	return nil
}

// occupy reports false for a re-entry, which no request for a free lock can make.
func (m *companion) occupy() (bool, error) {
	l := m.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !m.newcomer() {
		return false, nil
	}
	if !l.root.enter(m.as, false) {
		return false, Public(m.lockedHere())
	}
	return true, nil
}

// newcomer: it has nothing of the lock, and would share nothing. mu held.
func (a *acquisition) newcomer() bool {
	l := a.l
	outer, err := a.descent()
	return outer == nil && err == nil && !a.as.hasLost(l) && (a.as == nil || l.streak == nil || a.as != l.root.owner)
}

// scatter leaves the root slots of the company.
func (c *company) scatter() {
	if c == nil {
		return
	}
	for _, m := range c.in {
		m.l.pass()
	}
	c.in = nil
}

// keep holds on to the company's locks for a request that is left behind, until undo.
func (c *company) keep() {
	if c != nil {
		for _, m := range c.in {
			m.l.keep()
		}
	}
}

// undo is acquisition.undo for an acquisition with company.
func (c *company) undo(a *acquisition, granted bool) {
	in := c.in
	if granted {
		all, sc := &release{l: a.l, grant: a.grant}, a.l.p.Release
		for _, m := range in {
			all.more, sc = append(all.more, release{l: m.l, grant: a.grant}), a.l.p.ReleaseSeveral
		}
		if o := a.l.s.call(a.l.s.ctx, sc, all, 1, nil); o.Err != nil {
			a.settle()
		} else {
			for _, m := range in {
				m.asked = false
			}
			c.settle(a)
		}
	}
	a.l.pass()
	c.scatter()
	for _, m := range in {
		m.l.drop()
	}
}

// settle ends an attempt on all locks that its requests named, in the background.
func (a *acquisition) settle() {
	a.l.settle(a.grant, time.Now().Add(a.lease()), nil)
	a.with.settle(a)
}

func (c *company) settle(a *acquisition) {
	if c == nil {
		return
	}
	for i := range c.all {
		if m := &c.all[i]; m.asked {
			m.asked = false
			m.l.settle(a.grant, time.Now().Add(a.lease()), nil)
		}
	}
}

// keys are those of a lock and of the company in the request.
func (c *company) keys(first *Keys) *Keys {
	if c == nil || len(c.in) == 0 {
		return first
	}
	more := make([]*Keys, len(c.in))
	for i, m := range c.in {
		more[i] = m.l.keys
	}
	return first.and(more)
}

// and is the keys of several locks, as the scripts take them.
func (k *Keys) and(more []*Keys) *Keys {
	boxed := append([]any{nil}, k.boxed[1:]...)
	for _, m := range more {
		boxed = append(boxed, m.boxed[1:]...)
	}
	boxed[0] = len(boxed) - 1
	return &Keys{Name: k.Name, boxed: boxed, channel: k.channel}
}

// script is the one that the request runs.
func (c *company) script(p *Protocol) *wire.Script {
	if c == nil || len(c.in) == 0 {
		return p.Lock
	}
	return p.LockSeveral
}

// numbered takes in which lock a reply speaks of, where it is not all of them.
func (c *company) numbered(o wire.Outcome) wire.Outcome {
	if c != nil {
		number, rest, _ := strings.Cut(o.Reply, " ")
		if i, err := strconv.Atoi(number); err == nil {
			c.which, o.Reply = i, rest
		}
	}
	return o
}

// another: the reply speaks of one of the company.
func (c *company) another() bool { return c != nil && c.which >= 2 && c.which < 2+len(c.in) }

// locked is the error if that is taken.
func (c *company) locked(r answer) *LockedError { return r.locked(c.in[c.which-2].l.keys.Name) }

// takeAll is take for all that one request was granted: the company's first, and
// the leader's last, whose context carries all. Where it returns no hold, nothing of the
// company is held, or occupied, any more.
func (a *acquisition) takeAll(base time.Time, tokens string) (h *hold, begun bool, err error) {
	token, tokens, _ := strings.Cut(tokens, " ")
	if a.with == nil {
		return a.take(base, token)
	}
	ctx, in, taken := a.ctx, a.with.in, []*companion(nil)
	a.with.in = nil
	for _, m := range in {
		m.asked = false
		if err != nil {
			m.l.settle(a.grant, time.Now().Add(a.lease()), nil)
			m.l.pass()
			continue
		}
		var t string
		t, tokens, _ = strings.Cut(tokens, " ")
		m.ctx, m.grant, m.led = a.ctx, a.grant, true
		var got *hold
		got, begun, err = m.take(base, t)
		switch {
		case got != nil:
			m.got = got.handle()
			taken = append(taken, m)
			a.ctx = m.got.context()
			continue
		case !begun:
			m.l.pass()
		case err == nil: // lost at once
			err = errTooLate
		}
	}
	if err == nil {
		if h, begun, err = a.take(base, token); h != nil {
			for _, m := range taken {
				m.confirmed()
			}
			return h, true, nil
		}
	} else {
		begun = false
		a.l.settle(a.grant, time.Now().Add(a.lease()), nil)
	}
	a.ctx = ctx
	giveBack(taken)
	return nil, begun, err
}

// giveBack unlocks what the company got, in the background.
func giveBack(taken []*companion) {
	for _, m := range taken {
		s, got := m.l.s, m.got
		m.got = nil
		s.work.Add(1)
		go func() {
			defer s.end()
			_ = got.of.Unlock(s.ctx)
		}()
	}
}

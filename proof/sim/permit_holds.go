package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// write reports whether the hold excludes others.
func (h *held) write() bool { return h.n == engine.All }

// taken returns the number of permits of all valid holds that the function counts accepts, and the latest
// grant of these holds. Readers that share a grant share one permit.
func (l *permits) taken(counts func(*held) bool) (n int64, latest *grant) {
	most := map[string]int64{}
	for h := range l.considered {
		if !h.valid() || !counts(h) {
			continue
		}
		if latest == nil || h.grant.token > latest.token {
			latest = h.grant
		}
		if l.kind == 'p' {
			n += h.n
			continue
		}
		n += max(0, h.n-most[h.attempt])
		most[h.attempt] = max(most[h.attempt], h.n)
	}
	return n, latest
}

func (l *permits) entry(e, outer *held) {
	w := l.w
	if outer != nil {
		w.counts.Add("nested")
	}
	nested := outer != nil && l.kind == 'w' // a nested hold of a semaphore has permits of its own
	if nested {
		if e.token != outer.token || e.attempt != outer.attempt {
			w.fail("%s: nested in %d of %s it got %d of %s",
				e.who, outer.token, outer.attempt, e.token, e.attempt)
		}
		e.fixed = e.fixed || outer.fixed
	} else {
		l.order(e)
		if l.over[e.attempt].why != "" {
			w.counts.Add("shared in memory")
		}
		l.granting(e)
		// A lane has one place in the queue. Each time that this place comes to the front, one goroutine of
		// the lane is served. Meanwhile, a goroutine of another session may be served once. So the goroutine
		// of e can overtake a waiter once for each goroutine of the waiter's lane. It can do so once more if
		// its session was in the queue before.
		if w.turn == 0 && !w.deaf {
			l.overtaking(e, w.crowd+1)
		}
	}
	writes, others := !nested, map[string]bool{}
	for other := range l.considered {
		if other.attempt != e.attempt {
			others[other.attempt] = true
			continue
		}
		writes = writes || other.write() && other.valid()
		if other.token != e.token && (other.write() || e.write()) && other.valid() && l.kind == 'w' {
			w.fail("%s entered %s with %d, and %s is inside with %d",
				e.who, l.name, e.token, other.who, other.token)
		}
	}
	if e.write() && !writes {
		w.fail("%s has become the writer of %s, and was a reader", e.who, l.name)
	}
	if len(others) > 0 {
		w.counts.Add("side by side")
	}
	w.kept = append(w.kept, e.hold)
	l.considered[e], l.entered[e.p] = struct{}{}, time.Now()
	if n, latest := l.taken(func(h *held) bool { return !h.void() }); latest != nil && n > latest.limit {
		w.fail("%s entered %s with %d permits under %d: holders have %d, and there were %d",
			e.who, l.name, e.n, e.token, n, latest.limit)
	}
	l.beliefs()
}

// order checks the token of an entry.
func (l *permits) order(e *held) {
	if l.kind != 'w' || e.void() {
		return
	}
	if e.write() && e.token <= l.last {
		l.w.fail("%s: entered %s to write with %d after %d", e.who, l.name, e.token, l.last)
	}
	// Readers that join a writer who has become a reader have the writer's token.
	if o := l.written; o != nil && !e.write() &&
		(e.token < o.token || e.token == o.token && e.attempt != o.attempt) {
		l.w.fail("%s: entered %s to read with %d, after a writer with %d", e.who, l.name, e.token, o.token)
	}
	if l.last = max(l.last, e.token); e.write() {
		l.written = e
	}
}

func (l *permits) doubt(e *held) string {
	now := l.on[0].tick()
	all, _, _ := l.read()
	switch h, ok := all[e.attempt]; {
	case !ok:
		return "Redis knows nothing of " + short(e.attempt)
	case h.token != e.grant.token:
		return fmt.Sprintf("in Redis it is %d", h.token)
	case !h.in(now):
		return fmt.Sprintf("in Redis it ended %d us ago", now-h.till)
	case h.n < e.n:
		return fmt.Sprintf("it has %d permits in Redis, and not %d", h.n, e.n)
	}
	return ""
}

// busy reports whether there are too few permits for some of the waiting calls.
func (l *permits) busy() bool {
	var most int64
	for _, under := range []map[*lockCall]struct{}{l.w.asking, l.w.trying} {
		for q := range under {
			if q.n <= l.limit {
				most = max(most, q.n)
			}
		}
	}
	n, _ := l.taken(func(*held) bool { return true })
	// Holds that are lost but not unlocked count, too, because their leases may end later in Redis.
	all, _, _ := l.read()
	n = max(n, sum(all, l.on[0].tick()))
	return n > 0 && n+most > l.limit
}

// locker returns a Locker for n permits.
func (l *permits) locker(s *rlock.Session, n int64) rlock.Locker {
	switch {
	case l.kind == 'p':
		return semaphore.New(s, l.name, int(l.initial)).Locker(int(n))
	case n == engine.All:
		return rwlock.New(s, l.name)
	}
	return rwlock.New(s, l.name).RLocker()
}

// force takes the permits of the writer, of all readers, or of a holder that Inspect has shown some time
// before, as an operator would.
func (l *permits) force(ctx context.Context, p *process, rnd *rand.Rand) {
	w, s := l.w, p.sessions[l.on[0].number]
	m, sem := rwlock.New(s, l.name), semaphore.New(s, l.name, int(min(l.initial, semaphore.MaxLimit)))
	way := rnd.IntN(4)
	var forced any
	var err error
	switch {
	case l.kind == 'w' && way == 0:
		w.say("%s: forces the writer of %s", p.name, l.name)
		forced, err = m.ForceUnlock(ctx)
	case l.kind == 'w' && way == 1:
		w.say("%s: forces the readers of %s", p.name, l.name)
		forced, err = m.ForceUnlockReaders(ctx)
	default:
		var tokens []int64
		inspect := sem.Inspect
		if l.kind == 'w' {
			inspect = m.Inspect
		}
		st, _ := inspect(ctx)
		for _, h := range st.Holders {
			tokens = append(tokens, h.Token)
		}
		if len(tokens) == 0 {
			return
		}
		token := tokens[rnd.IntN(len(tokens))]
		w.sleep(upTo(rnd, 20*time.Millisecond, 300*time.Millisecond))
		w.say("%s: forces %s from %d", p.name, l.name, token)
		if l.kind == 'w' {
			forced, err = m.ForceUnlockToken(ctx, token)
		} else {
			forced, err = sem.ForceRelease(ctx, token)
		}
	}
	w.say("%s: forced %s: %v, %v", p.name, l.name, forced, err)
}

// setLimit changes the limit of a semaphore.
func (l *permits) setLimit(p *process, rnd *rand.Rand) {
	w := l.w
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	sem, n := semaphore.New(p.sessions[l.on[0].number], l.name, int(l.initial)), 1+rnd.IntN(4)
	try := rnd.IntN(5) == 0
	w.say("%s: sets the limit of %s to %d, only if there is none: %v", p.name, l.name, n, try)
	var err error
	if try {
		_, err = sem.TrySetLimit(ctx, n)
	} else {
		err = sem.SetLimit(ctx, n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("%s: set the limit of %s: %v", p.name, l.name, err)
	if err != nil && w.well() && !p.over() {
		w.fail("%s: SetLimit: %v", p.name, err)
	}
}

// upgrade reports whether a call failed because a reader wanted to write, and checks that this is true.
func (a *actor) upgrade(h way, inside []*entry, err error) bool {
	if !errors.Is(err, rwlock.ErrUpgrade) {
		return false
	}
	a.counts.Add("upgrades refused")
	for _, e := range inside {
		if e.parts[0].write() && e.hold.Err() == nil {
			a.fail("%s: %v, and it writes", a.name, err)
		}
	}
	if !h.nested || h.n != engine.All {
		a.fail("%s: %s: %v", a.name, h, err)
	}
	return true
}

// outlives checks the holds that are left after an Unlock. As long as the hold of a reader is valid, its
// context must not end, even if the outer hold was unlocked.
func (a *actor) outlives(inside []*entry) {
	for _, e := range inside {
		if p := e.parts[0]; e.locks[0].kind == 'w' && !p.write() && p.hold.Err() == nil &&
			e.ctx.Err() != nil {
			a.fail("%s: it reads under %d, and its context has ended: %v",
				a.name, p.token, context.Cause(e.ctx))
		}
	}
}

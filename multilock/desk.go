package multilock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
)

// desk is where the goroutines of a process meet for one RedLock. One of them at a time deals with the
// servers, or holds the lock. The others receive from both channels, so they are served in their order.
type desk struct {
	q    *quorum
	name string
	uses int // guarded by quorum.mu

	free chan struct{}  // has one if no goroutine deals with the servers, or holds the lock
	pass chan *majority // a hold that was unlocked: the receiver goes on with its parts

	hold  atomic.Pointer[majority]         // the one that is held
	seen  atomic.Pointer[failure.Sighting] // of a holder in another process
	taken atomic.Bool                      // it was, as far as is known: those that wait do so for a holder
}

// desk finds or makes the desk of a name, which is kept until drop.
func (q *quorum) desk(name string) *desk {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.desks[name]
	if d == nil {
		d = &desk{q: q, name: name, free: make(chan struct{}, 1), pass: make(chan *majority)}
		d.free <- struct{}{}
		q.desks[name] = d
	}
	d.uses++
	return d
}

func (d *desk) keep() {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	d.uses++
}

func (d *desk) drop() {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	if d.uses--; d.uses == 0 {
		delete(d.q.desks, d.name)
	}
}

// known is the holder of the lock, as far as this process knows; nil if that is not known.
func (d *desk) known(begun time.Time) *failure.LockedError {
	if m := d.hold.Load(); m != nil {
		return m.locked()
	}
	return d.seen.Load().Locked(d.name, begun, nil)
}

// locked is the error of a call that it keeps out.
func (m *majority) locked() *failure.LockedError {
	return &failure.LockedError{Name: m.l.name, Holder: m.ownerField(), About: m.q.home.About(),
		Remaining: max(0, time.Until(m.until())), Hint: failure.SelfHint}
}

// suspect logs, once for each hold, that goroutines wait for it for long: the process may wait for itself.
func (d *desk) suspect() {
	m := d.hold.Load()
	if m != nil && time.Since(m.begun) >= engine.LongWait && !m.suspected.Swap(true) {
		d.q.lead.Warn(engine.WaitsForItself, "lock", d.name)
	}
}

// leave gives the parts of a hold that was unlocked to the goroutine that has waited longest, if they may be
// passed on, and reports whether it has.
func (d *desk) leave(m *majority) (passed bool) {
	if m.mayPass() {
		d.hold.Store(nil)
		select {
		case d.pass <- m:
			d.drop()
			return true
		default:
		}
	}
	return false
}

// next lets the goroutine that has waited longest deal with the servers. Their locks must know that a release
// is under way: a vote waits for that, and is refused by what is held.
func (d *desk) next() {
	d.hold.Store(nil)
	d.free <- struct{}{}
	d.drop()
}

// mayPass reports whether all parts that are left may be passed on. A bare majority would not do: a server
// may have forgotten one of them.
func (m *majority) mayPass() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := m.liveParts()
	stays := slices.ContainsFunc(live, func(i int) bool { return !m.parts[i].MayPass() })
	return len(live) >= m.q.need && !stays
}

// takeOver goes on with the parts of a hold that was unlocked, each with its next token.
func (v *vote) takeOver(from *majority) (*entry, error) {
	defer from.bury() // what was lost
	switch {
	case v.bounds.Over():
		from.release(context.Background(), from.live())
		return nil, v.whyOver(nil)
	case v.cfg.Lease != 0: // it needs parts of its own
		from.release(context.Background(), from.live())
		return v.compete()
	}
	c := v.newCount()
	from.mu.Lock()
	parts := slices.Clone(from.parts)
	from.mu.Unlock()
	for i, p := range parts {
		if p != nil {
			c.parts[i] = p.Pass(v.values, v.part(i, v.values, c))
		}
		if c.parts[i] != nil {
			c.granted++
		} else {
			c.errs[i] = errTaken
		}
	}
	e, err := v.decide(c, nil, func() {})
	switch {
	case e != nil:
		v.handed = true
	case v.again(err):
		return v.compete()
	}
	return e, err
}

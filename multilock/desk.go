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

// keep notes the hold, for which the desk is kept until forget.
func (d *desk) keep(m *majority) {
	d.q.mu.Lock()
	d.uses++
	d.q.mu.Unlock()
	d.hold.Store(m)
}

func (d *desk) forget() {
	d.hold.Store(nil)
	d.drop()
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
	if m == nil {
		return
	}
	m.mu.Lock()
	long := m.token != 0 && !m.suspected && time.Since(m.begun) >= engine.LongWait
	m.suspected = m.suspected || long
	m.mu.Unlock()
	if long {
		d.q.lead.Warn(engine.WaitsForItself, "lock", d.name)
	}
}

// next lets the goroutine that has waited longest deal with the servers. Their locks must know that a release
// is under way: a vote waits for that, and is refused by what is held.
func (d *desk) next() {
	d.forget()
	d.free <- struct{}{}
}

// pass gives a hold that was unlocked to the goroutine that has waited longest, if all of its parts may be
// passed on, and reports whether it has. A bare majority would not do: a server may have forgotten one of
// them.
func (m *majority) pass() bool {
	m.mu.Lock()
	live := m.liveParts()
	stays := m.own || slices.ContainsFunc(live, func(i int) bool { return !m.parts[i].MayPass() })
	m.mu.Unlock()
	if len(live) < m.q.need || stays {
		return false
	}
	select {
	case m.d.pass <- m:
		return true
	default:
		return false
	}
}

// goOn goes on with a hold that was unlocked, with the next token.
func (v *vote) goOn(m *majority) (*entry, error) {
	if v.cfg.Lease == 0 && !v.bounds.Over() { // else it needs parts of its own
		if token := m.passed(); token != 0 {
			if e := m.become(v, token); e != nil {
				v.handed = true
				return e, nil
			}
		}
	}
	m.stop()
	m.release(context.Background(), m.live())
	m.bury()
	v.d.forget()
	if v.bounds.Over() {
		return nil, v.whyOver(nil)
	}
	return v.compete()
}

// passed gives the parts to the next hold, and returns its token; 0 if no majority would grant only higher
// ones.
func (m *majority) passed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, stored := m.token+1, 0
	for _, i := range m.liveParts() {
		if m.parts[i].Pass() >= next {
			stored++
		} else {
			m.parts[i].Reserve(next)
		}
	}
	if stored < m.q.need {
		return 0
	}
	return next
}

package multilock

import (
	"errors"
	"slices"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/rlock"
)

// nest enters a hold: the parts that the others answer for.
func (v *vote) nest(outer *majority) (*majority, error) {
	d := v.d
	defer d.entered(v)
	for round := 0; ; round++ {
		m, err := v.round(true, outer)
		switch {
		case m != nil:
			return m, nil
		case outer.Err() != nil:
			return nil, failure.Named(v.l.name, failure.ErrLost)
		case v.bounds.Over() || !errors.Is(err, rlock.ErrLost) && (v.try || !errors.Is(err, rlock.ErrLocked)):
			return nil, err
		}
		v.pause(round) // a part was lost, or is just being left by the one before
	}
}

// above is the innermost live hold in which one is nested that has begun in outer; nil if there is none. mu
// held.
func (d *desk) above(outer *majority) *majority {
	for outer != nil && !slices.Contains(d.holds, outer) {
		outer = outer.outer
	}
	return outer
}

// shut reports whether another one is nested in a hold already: one at a time is. mu held.
func (d *desk) shut(outer *majority) bool {
	return slices.ContainsFunc(d.holds, func(m *majority) bool {
		return m != outer && m.outer != nil && d.above(m.outer) == outer
	}) || slices.ContainsFunc(d.entering, func(v *vote) bool {
		return d.above(v.outer) == outer
	})
}

// enterIn waits until a call may nest in a hold. It reports false if it is to look again: the hold may be
// over. mu is held; enterIn releases it.
func (v *vote) enterIn(outer *majority) (bool, error) {
	d := v.d
	v.outer = outer
	if !d.shut(outer) {
		d.entering = append(d.entering, v)
		d.mu.Unlock()
		return true, nil
	}
	if v.try {
		known := d.known(v.begun)
		d.mu.Unlock()
		return false, failure.Public(known)
	}
	s := &seat{vote: v, turn: make(chan *grant, 1)}
	d.nesting = append(d.nesting, s)
	d.mu.Unlock()
	v.announce()
	g, ok := wakeup.Await(&v.bounds, s.turn)
	if ok && !v.bounds.Over() {
		return g == nil, nil
	}
	d.mu.Lock()
	v.holder = d.known(v.begun)
	i := slices.Index(d.nesting, s)
	if i >= 0 {
		d.nesting = slices.Delete(d.nesting, i, i+1)
	}
	d.mu.Unlock()
	if i < 0 && (ok && g == nil || !ok && <-s.turn == nil) {
		d.entered(v)
	}
	return false, v.whyOver(nil)
}

// entered is called when a call nests, or has failed to.
func (d *desk) entered(v *vote) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entering = slices.DeleteFunc(d.entering, func(other *vote) bool { return other == v })
	d.letIn()
}

// letIn lets those nest that may by now, first come, first served. mu held.
func (d *desk) letIn() {
	d.nesting = slices.DeleteFunc(d.nesting, func(s *seat) bool {
		switch {
		case !slices.Contains(d.holds, s.vote.outer):
			s.turn <- lookAgain
		case !d.shut(s.vote.outer):
			d.entering = append(d.entering, s.vote)
			s.turn <- nil
		default:
			return false
		}
		return true
	})
}

package multilock

import (
	"errors"
	"sync"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/rlock"
)

// place is that of a hold, or of one to come, among those that are nested in each other. In each, one at a
// time is nested, as in a lock of its own.
type place struct {
	mu    *sync.Mutex // of the outermost; guards what follows
	outer *place
	inner *place
	freed chan struct{} // closed when there may be room; nil: no goroutine waits for that
}

// enter makes a place in another one. busy is not nil where there is none; it is closed when there may be.
func (p *place) enter() (in *place, busy <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		p.inner = &place{mu: p.mu, outer: p}
		return p.inner, nil
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return nil, p.freed
}

// empty reports whether nothing is nested in it, or about to be.
func (p *place) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner == nil
}

// leave ends a place. A hold that is nested in it goes on in the outer one.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner != nil {
		p.inner.outer = p.outer
	}
	if p.outer != nil {
		p.outer.inner = p.inner
		p.outer.wake()
	}
	p.inner = nil
	p.wake()
}

// wake has those look again that wait for room. mu held.
func (p *place) wake() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// nest enters a hold: the parts that the others answer for. Neither a hold nor an error: the outer hold is
// over, look again.
func (v *vote) nest(outer *majority) (m *majority, err error) {
	place, busy := outer.place.enter()
	if place == nil {
		self := outer.locked()
		if v.try {
			return nil, failure.Public(self)
		}
		v.announce()
		if _, ok := wakeup.Await(&v.bounds, busy); !ok {
			v.holder = self
			return nil, v.whyOver(nil)
		}
		return nil, nil
	}
	v.place = place
	defer func() {
		if m == nil {
			place.leave()
		}
	}()
	for round := 0; ; round++ {
		m, err = v.round(true, outer)
		switch {
		case m != nil:
			return m, nil
		case outer.Err() != nil:
			return nil, nil
		case v.bounds.Over() || !errors.Is(err, rlock.ErrLost) && (v.try || !errors.Is(err, rlock.ErrLocked)):
			return nil, err
		}
		v.pause(round) // a part was lost, or is just being left by the one before
	}
}

package mutex

import (
	"context"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
)

// Watch has a Hold of one lock released when its user has forgotten it. A fixed lease may be meant to run out, and goes
// on.
func Watch(hd *Hold) {
	if e := EntryOf(hd); !e.fixed || e.owner != nil {
		handle.WhenForgotten(hd, (*view)(e), (*view).forgotten)
	}
}

// forgotten ends a hold whose Hold and context were collected: no goroutine can use or unlock it. A fixed lease goes on in
// Redis. The runtime's cleanups wait for each other, so what takes time has a goroutine of its own.
func (v *view) forgotten() {
	if v.fixed {
		(*Entry)(v).forgive()
		return
	}
	go func() {
		if (*Entry)(v).State() == handover.Held {
			v.t.Lock.S().Warn("a Hold and its context were forgotten without Unlock; releasing the lock", "lock", v.Name(), "token", v.token)
			v.cancel(failure.ErrForgotten)
		}
		_ = v.Unlock(context.Background())
	}()
}

// forgive clears the loss that the hold's owner remembers: no goroutine can act under that hold any more.
func (e *Entry) forgive() {
	l := e.t.Lock
	l.Mu.Lock()
	defer l.Mu.Unlock()
	e.unlocked = true
	if e.State() == handover.Lost {
		e.owner.Lose(l.lostBy(), -1)
	}
}

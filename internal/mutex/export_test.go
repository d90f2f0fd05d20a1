package mutex

import "github.com/lockline/lockline/internal/failure"

var ErrForgotten = failure.ErrForgotten

// Forget does what the collector has done once the Hold is collected.
func (e *Entry) Forget() { e.Forgotten() }

// Unlocked reports whether nobody will unlock e any more.
func (e *Entry) Unlocked() bool {
	e.t.Lock.Mu.Lock()
	defer e.t.Lock.Mu.Unlock()
	return e.unlocked
}

// Last reports whether the tenure is over.
func (v Leaving) Last() bool { return v.last }

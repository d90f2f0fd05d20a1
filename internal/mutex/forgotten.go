package mutex

import (
	"context"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
)

// Forgotten ends a hold whose Hold and context were collected: no goroutine can use or unlock it. A fixed
// lease goes on in Redis. The runtime's cleanups wait for each other, so what takes time has a goroutine of
// its own.
func (e *Entry) Forgotten() {
	if e.fixed {
		e.t.Lock.Mu.Lock()
		e.unlocked = true
		e.t.Lock.Mu.Unlock()
		return
	}
	go func() {
		if e.State() == handover.Held {
			e.t.Lock.S().Warn("a Hold and its context were forgotten without Unlock; releasing the lock",
				"lock", e.Name(), "token", e.token)
			e.cancel(failure.ErrForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}

package handle

import (
	"sync"
	"sync/atomic"
)

// keeping has the Holds and Leaderships that a test keeps reachable.
var keeping struct {
	callers atomic.Int32 // number of calls of KeepAll whose function end was not called yet

	mu   sync.Mutex       // guards kept; no other mutex is locked while mu is held
	kept map[any]struct{} // the keys are pointers
}

// KeepAll keeps Holds and Leaderships reachable that are made after this call. They stay reachable until they
// are unlocked or end is called, so none of them counts as forgotten. KeepAll is for tests in a synctest
// bubble, because the runtime reports a forgotten Hold from outside the bubble. Releasing the Hold from there
// would end the program.
func KeepAll() (end func()) {
	keeping.callers.Add(1)
	return sync.OnceFunc(func() {
		if keeping.callers.Add(-1) > 0 {
			return // another test still keeps its own pointers
		}
		keeping.mu.Lock()
		defer keeping.mu.Unlock()
		if keeping.callers.Load() == 0 {
			clear(keeping.kept)
		}
	})
}

// Keep keeps the target of this pointer reachable until Drop is called, or until every KeepAll has ended. If
// no KeepAll is active, Keep does nothing.
func Keep(pointer any) {
	if keeping.callers.Load() == 0 {
		return
	}
	keeping.mu.Lock()
	defer keeping.mu.Unlock()
	if keeping.kept == nil {
		keeping.kept = map[any]struct{}{}
	}
	keeping.kept[pointer] = struct{}{}
}

// Drop ends a Keep of this pointer.
func Drop(pointer any) {
	if keeping.callers.Load() == 0 {
		return
	}
	keeping.mu.Lock()
	defer keeping.mu.Unlock()
	delete(keeping.kept, pointer)
}

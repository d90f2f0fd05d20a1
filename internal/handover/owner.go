package handover

import "sync"

// Owner is one owner for all that runs below a context (WithOwner of package rlock). All methods are safe for
// concurrent use, and on nil, the owner that no goroutines share.
type Owner struct {
	mu   sync.Mutex // guards lost; a leaf
	lost map[LostLock]int
}

// LostLock names a lock that an owner has lost, in one session.
type LostLock struct {
	Session any // a pointer
	Lock    string
}

// Lose counts the owner's holds of a lock that were lost and neither unlocked nor forgotten yet. As long as there are
// any, the owner must not take the lock afresh under code that has not noticed the loss.
func (o *Owner) Lose(lock LostLock, n int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		o.lost = map[LostLock]int{}
	}
	if o.lost[lock] += n; o.lost[lock] <= 0 {
		delete(o.lost, lock)
	}
}

// HasLost reports whether any such hold is left.
func (o *Owner) HasLost(lock LostLock) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost[lock] > 0
}

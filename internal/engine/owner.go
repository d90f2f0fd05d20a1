package engine

import (
	"context"
	"sync"
)

// Owner is one owner for all that runs below a context (WithOwner).
type Owner struct {
	mu   sync.Mutex // guards lost; a leaf
	lost map[lostKey]int
}

type lostKey struct {
	s    *Session
	lock string
}

// lose counts the owner's holds of a lock that were lost and neither unlocked nor forgotten yet: as
// long as there are any, it must not take the lock afresh under code that
// believes that it never lost it.
func (o *Owner) lose(l *lock, n int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		o.lost = map[lostKey]int{}
	}
	k := lostKey{l.s, l.keys.lock()}
	if o.lost[k] += n; o.lost[k] <= 0 {
		delete(o.lost, k)
	}
}

func (o *Owner) hasLost(l *lock) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost[lostKey{l.s, l.keys.lock()}] > 0
}

// WithOwner makes all that runs below the returned context one owner.
func WithOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, new(Owner))
}

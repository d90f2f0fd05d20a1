package otellock

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/lockline/lockline/rlock"
)

// waiting remembers the start of each wait. An event does not name its acquisition, so waiting recognizes an
// acquisition by its context, session and lock. If several acquisitions have the same ones, the first
// acquisition to end gets the earliest start. So each start is used once, and the sum of all waits is right.
type waiting struct {
	mu    sync.Mutex // guards since
	since map[acquisition][]time.Time
}

type acquisition struct {
	ctx           context.Context
	session, lock string
}

// key returns the key of an acquisition. It returns false if ctx cannot be compared, like a struct that
// contains a slice. Acquisitions with such a context do not count as waiters.
func key(ctx context.Context, e rlock.Event) (acquisition, bool) {
	return acquisition{ctx, e.Session, string(e.LockKind) + e.Name}, reflect.ValueOf(ctx).Comparable()
}

func (w *waiting) begin(ctx context.Context, e rlock.Event) bool {
	k, ok := key(ctx, e)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since == nil {
		w.since = map[acquisition][]time.Time{}
	}
	w.since[k] = append(w.since[k], e.At)
	return true
}

// end reports whether the acquisition has waited, and returns the start of its wait. The acquisition is then
// forgotten.
func (w *waiting) end(ctx context.Context, e rlock.Event) (since time.Time, waited bool) {
	k, ok := key(ctx, e)
	if !ok {
		return since, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.since[k]
	switch len(all) {
	case 0:
		return since, false
	case 1:
		delete(w.since, k)
	default:
		w.since[k] = all[1:]
	}
	return all[0], true
}

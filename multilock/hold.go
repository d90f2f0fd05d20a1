package multilock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/rlock"
)

// holding is what a Hold of a MultiLock stands for.
type holding struct {
	l        *MultiLock
	parts    []*mutex.Hold // by member
	unlocked atomic.Bool
}

func (h *holding) Name() string { return h.l.name }

// Token is 0: no number grows with every holder of every member. Each part has its own.
func (h *holding) Token() int64 { return 0 }

func (h *holding) Parts() []*mutex.Hold { return h.parts }

func (h *holding) Deadline() time.Time {
	first := h.parts[0].Deadline()
	for _, p := range h.parts[1:] {
		if d := p.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

func (h *holding) Err() error {
	var first error
	for i, p := range h.parts {
		err := p.Err()
		if err != nil && !errors.Is(err, rlock.ErrNotHeld) {
			return h.l.about(i, err)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (h *holding) Extend(ctx context.Context, d time.Duration) error {
	errs := make([]error, len(h.parts))
	var wg sync.WaitGroup
	for i, p := range h.parts {
		wg.Go(func() { errs[i] = p.Extend(ctx, d) })
	}
	wg.Wait()
	return h.l.join(errs)
}

func (h *holding) Unlock(ctx context.Context) error {
	if h.unlocked.Swap(true) {
		return failure.Within(fmt.Sprintf("lock %q", h.l.name), rlock.ErrNotHeld)
	}
	return h.l.join(unlockAll(ctx, h.parts))
}

// join joins the members' errors.
func (l *MultiLock) join(errs []error) error {
	for i, err := range errs {
		if err != nil {
			errs[i] = l.about(i, err)
		}
	}
	return failure.Join(errs...)
}

package multilock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// holding is the Holding of a MultiLock.
type holding struct {
	l        *MultiLock
	given    context.Context // to Lock
	ctx      context.Context // ends with the first of the parts that does
	cancel   context.CancelCauseFunc
	parts    []part        // by member; never changes, because end reads it in goroutines of its own
	stops    []func() bool // each ends the watch on the context of a part
	unlocked atomic.Bool
}

// check ends the context if the context of a part has ended.
func (h *holding) check() {
	for i, p := range h.parts {
		if p.ctx.Err() != nil {
			h.end(i)
			return
		}
	}
}

// end ends the context because the context of the i-th part has ended. If that part was taken below another
// one, the other one may be the reason. So end names the part whose hold has ended.
func (h *holding) end(i int) {
	if ended := slices.IndexFunc(h.parts, func(p part) bool { return p.hold.Err() != nil }); ended >= 0 {
		i = ended
	}
	if h.given.Err() != nil { // which has ended both
		h.cancel(context.Cause(h.given))
	} else {
		h.cancel(h.l.about(i, cmp.Or(context.Cause(h.parts[i].ctx), h.parts[i].hold.Err())))
	}
}

// hold makes all parts one hold.
func (l *MultiLock) hold(ctx context.Context, parts []part) (context.Context, *rlock.Hold) {
	h := &holding{l: l, given: ctx, parts: parts}
	core, cancel := context.WithCancelCause(ctx)
	h.ctx, h.cancel = &endingContext{core, h.check}, cancel
	for i, p := range parts {
		h.stops = append(h.stops, context.AfterFunc(p.ctx, func() { h.end(i) }))
	}
	held, hd := handle.New(ctx, h)
	return held, (*rlock.Hold)(hd)
}

func (h *holding) Name() string { return h.l.name }

// Token returns 0, because no number grows with every holder of every member. Each part has its own token.
func (h *holding) Token() int64 { return 0 }

func (h *holding) Parts() []*handle.Hold {
	holds := make([]*handle.Hold, len(h.parts))
	for i, p := range h.parts {
		holds[i] = (*handle.Hold)(p.hold)
	}
	return holds
}

func (h *holding) Context() context.Context { return h.ctx }

// Find looks among the parts, and then in their contexts, which may have values of users' own Lockers.
func (h *holding) Find(key any) any {
	if found := find(h.parts, key); found != nil {
		return found
	}
	core := h.ctx.(*endingContext).Context
	for _, p := range slices.Backward(h.parts) {
		if p.ctx == handle.Context((*handle.Hold)(p.hold)) {
			continue
		}
		found := p.ctx.Value(key)
		if found != nil && core.Value(key) != any(core) { // else package context asks for the one that ends
			return found
		}
	}
	return nil
}

// find returns the result of Find of the innermost part that has one.
func find(parts []part, key any) any {
	for _, nested := range [...]bool{true, false} {
		for _, p := range slices.Backward(parts) {
			if of := (*handle.Hold)(p.hold).Of(); of != nil && p.nested == nested {
				if found := of.Find(key); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

// Forgotten is called when no goroutine has any of the parts.
func (h *holding) Forgotten() {
	for _, p := range h.parts {
		(*handle.Hold)(p.hold).Forget()
	}
}

func (h *holding) Deadline() time.Time {
	first := h.parts[0].hold.Deadline()
	for _, p := range h.parts[1:] {
		if d := p.hold.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

func (h *holding) Err() error {
	var first error
	for i, p := range h.parts {
		err := p.hold.Err()
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
	wire.Gather(ctx, len(h.parts), func(ctx context.Context, i int) error {
		errs[i] = h.parts[i].hold.Extend(ctx, d)
		return nil
	})
	return h.l.join(errs)
}

// Stay keeps each part taken until d from now, even after its Unlock.
func (h *holding) Stay(d time.Duration) {
	for _, p := range h.parts {
		(*handle.Hold)(p.hold).Stay(d)
	}
}

// WaitReplicas waits for the replicas of one part after another, because each part may be on another server.
func (h *holding) WaitReplicas(ctx context.Context, n int) error {
	errs := make([]error, len(h.parts))
	for i, p := range h.parts {
		errs[i] = p.hold.WaitReplicas(ctx, n)
	}
	return h.l.join(errs)
}

func (h *holding) Unlock(ctx context.Context) error {
	if h.unlocked.Swap(true) {
		return failure.Named(h.l.name, failure.ErrUnlockedBefore)
	}
	for _, stop := range h.stops {
		stop()
	}
	h.cancel(unlockedError(h.l.name))
	return h.l.join(h.unlock(ctx))
}

// unlock unlocks all parts, and returns their errors. It waits no longer than an Unlock with that context,
// however many parts there are. The rest is unlocked in the background.
func (h *holding) unlock(ctx context.Context) []error {
	until, cancel := handle.UnlockBound(ctx)
	defer cancel()
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(h.parts)) // has room for those that nobody reads any more
	go h.l.unlock(until, h.parts, func(i int, err error) { results <- result{i, err} })
	errs := make([]error, len(h.parts))
	for i := range errs {
		errs[i] = errUnread
	}
	for range h.parts {
		select {
		case r := <-results:
			errs[r.i] = r.err
			continue
		case <-until.Done():
		}
		break
	}
	for i, err := range errs {
		if err == errUnread {
			errs[i] = failure.Named(h.parts[i].hold.Name(), handle.UnlockError(until))
		}
	}
	return errs
}

// errUnread is the result of a part whose Unlock has not returned.
var errUnread = errors.New("not read")

// unlockedError is the cause with which Unlock ends the context of a hold. Its value is the name of the lock.
type unlockedError string

func (e unlockedError) Error() string { return failure.UnlockedText("", string(e)) }
func (unlockedError) Unwrap() error   { return failure.ErrUnlocked }

// join returns one error for the errors of the members.
func (l *MultiLock) join(errs []error) error {
	for i, err := range errs {
		if err != nil {
			errs[i] = l.about(i, err)
		}
	}
	return failure.Join(errs...)
}

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

// A holding is the hold of a MultiLock, as a handle.Holding.
type holding struct {
	l         *MultiLock
	callerCtx context.Context // context that was passed to Lock
	ctx       context.Context // ends as soon as the context of any part ends
	cancel    context.CancelCauseFunc
	parts     []part        // by index of the member; never changes, so that end needs no mutex
	stops     []func() bool // each stops the context.AfterFunc of a part
	unlocked  atomic.Bool
}

// check ends h.ctx if the context of a part has ended.
func (h *holding) check() {
	for i, p := range h.parts {
		if p.ctx.Err() != nil {
			h.end(i)
			return
		}
	}
}

// end ends h.ctx because the context of the i-th part has ended. If this part is nested, its context also
// ends with the hold of an earlier part. So the cause names the first part whose own hold has ended. If there
// is no such part, the cause names the i-th part. But if the caller's context has ended, the cause is the
// cause of that context, and names no part.
func (h *holding) end(i int) {
	if ended := slices.IndexFunc(h.parts, func(p part) bool { return p.hold.Err() != nil }); ended >= 0 {
		i = ended
	}
	if h.callerCtx.Err() != nil { // the contexts of the parts have ended with this context
		h.cancel(context.Cause(h.callerCtx))
	} else {
		h.cancel(h.l.memberError(i, cmp.Or(context.Cause(h.parts[i].ctx), h.parts[i].hold.Err())))
	}
}

// hold returns the hold of all parts, and its context.
func (l *MultiLock) hold(ctx context.Context, parts []part) (context.Context, *rlock.Hold) {
	h := &holding{l: l, callerCtx: ctx, parts: parts}
	core, cancel := context.WithCancelCause(ctx)
	h.ctx, h.cancel = &endingContext{core, h.check}, cancel
	for i, p := range parts {
		h.stops = append(h.stops, context.AfterFunc(p.ctx, func() { h.end(i) }))
	}
	held, hd := handle.New(ctx, h)
	return held, (*rlock.Hold)(hd)
}

func (h *holding) Name() string { return h.l.name }

// Token returns 0, because a MultiLock has no token of its own. Each part has its own token (see Hold.Parts).
func (h *holding) Token() int64 { return 0 }

func (h *holding) Parts() []*handle.Hold {
	holds := make([]*handle.Hold, len(h.parts))
	for i, p := range h.parts {
		holds[i] = (*handle.Hold)(p.hold)
	}
	return holds
}

func (h *holding) Context() context.Context { return h.ctx }

// Find calls Find of the parts. If all of them return nil, Find looks up the key in the contexts of the
// parts, because a user's own Locker may have set values there.
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
		// Package context uses a private key to find the nearest context that it can cancel. For this key,
		// the value of core is core itself. In this case, Find must not return the context of a part.
		if found != nil && core.Value(key) != any(core) {
			return found
		}
	}
	return nil
}

// find calls Find of the parts, from the innermost part to the outermost, and returns the first result that
// is not nil. Nested parts are inside the parts that are not nested.
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
			return h.l.memberError(i, err)
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

// WaitReplicas waits for one part after another, until at least n replicas of the server of that part have
// the part.
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
	h.cancel(&unlocked{h})
	return h.l.join(h.unlock(ctx))
}

// unlock unlocks all parts, and returns their errors. It waits until the Unlock of each part has returned, or
// until the context of handle.UnlockBound ends. In the second case, the rest is unlocked in the background.
func (h *holding) unlock(ctx context.Context) []error {
	until, cancel := handle.UnlockBound(ctx)
	defer cancel()
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(h.parts)) // has room for results that arrive after unlock has returned
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

// errUnread stands for the result of an Unlock that has not returned yet.
var errUnread = errors.New("not read")

// unlocked is the cause with which Unlock ends the context of a hold of a MultiLock. It is the holding, so
// that a hold which is nested in a part can find out whether its outer hold was unlocked.
type unlocked struct{ *holding }

func (u *unlocked) Error() string { return failure.UnlockedText("", u.l.name) }
func (u *unlocked) Unwrap() error { return failure.ErrUnlocked }

// join combines the errors of the members, given in the order of the members, into one error. It returns nil
// if all of them are nil.
func (l *MultiLock) join(errs []error) error {
	for i, err := range errs {
		if err != nil {
			errs[i] = l.memberError(i, err)
		}
	}
	return failure.Join(errs...)
}

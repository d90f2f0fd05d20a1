package multilock

import (
	"context"
	"slices"

	"github.com/lockline/lockline/internal/mutex"
)

// successor waits in this process for one of several locks that are unlocked together, and wants none but these along:
// it can be passed all of them in memory. They are reserved for it one by one; the one that it waits for comes last.
// The zero successor stands for no waiter, and each lock goes to the next in its own line. It belongs to the goroutine that unlocks.
type successor struct {
	w        *mutex.Waiter
	ctx      context.Context // that it began to wait with
	lead     int             // the lock that it waits for, among the holds
	locks    []*mutex.Lock   // that it wants along
	reserved []mutex.Handoff // by lock; nil once they are passed on
}

func successorTo(holds []*mutex.Hold) *successor {
	for i, hd := range holds {
		l := lockOf(hd)
		if l == nil {
			continue
		}
		to := successor{lead: i}
		var u *unit
		l.Mu.Lock()
		if w := l.Root.Waiters.First(); w != nil && w.Along > 0 {
			a := w.For.(*mutex.Acquisition)
			to.w, to.ctx, u = w, a.Ctx, a.Unit.(*unit) // once it is out of the list, its goroutine may change a
		}
		l.Mu.Unlock()
		if u == nil {
			continue
		}
		staysLocked := func(l *mutex.Lock) bool {
			return !slices.ContainsFunc(holds, func(hd *mutex.Hold) bool { return lockOf(hd) == l })
		}
		if !slices.ContainsFunc(u.locks, staysLocked) {
			to.locks, to.reserved = u.locks, make([]mutex.Handoff, len(u.locks))
			return &to
		}
	}
	return &successor{}
}

// lockOf is that of a Hold of one lock.
func lockOf(hd *mutex.Hold) *mutex.Lock {
	if e := mutex.EntryOf(hd); e != nil {
		return e.Lock()
	}
	return nil
}

// Next is the successor, for a lock that it wants along.
func (to *successor) Next(l *mutex.Lock) *mutex.Waiter {
	if slices.Contains(to.locks, l) {
		return to.w
	}
	return l.Root.Waiters.First()
}

// MayPass lets the successor have what it wants along where it has nothing of that lock, and its own where all the others
// are reserved.
func (to *successor) MayPass(l *mutex.Lock, w *mutex.Waiter) bool {
	switch {
	case slices.Contains(to.locks, l):
		return mutex.NewAcquisition(to.ctx, l, mutex.Config{}, mutex.Alone).Newcomer()
	case w.Along > 0:
		return to.w == w && to.complete()
	}
	return true
}

// Pass reserves what the successor wants along, and passes on all with its own.
func (to *successor) Pass(l *mutex.Lock, w *mutex.Waiter, h mutex.Handoff) {
	if i := slices.Index(to.locks, l); i >= 0 {
		l.S().Add(1) // until it is inherited, declined or reclaimed
		to.reserved[i] = h
		return
	}
	if w.Along > 0 {
		h.With, to.reserved = to.reserved, nil
	}
	w.Answer(h)
}

// complete: all are reserved for it.
func (to *successor) complete() bool {
	return !slices.ContainsFunc(to.reserved, func(h mutex.Handoff) bool { return !h.Passed() })
}

// order is the index of the n-th of len holds to leave: the one that the successor waits for is the last.
func (to *successor) order(n, len int) int {
	switch {
	case to.w == nil || n < to.lead:
		return n
	case n < len-1:
		return n + 1
	}
	return to.lead
}

// reclaim takes back what was reserved of l and not passed on.
func (to *successor) reclaim(ctx context.Context, l *mutex.Lock) (mutex.Leaving, error) {
	i := slices.Index(to.locks, l)
	if i < 0 || to.reserved == nil || !to.reserved[i].Passed() {
		return mutex.Leaving{}, nil
	}
	t := to.reserved[i].Tenure
	to.reserved[i] = mutex.Handoff{}
	return t.Quit(ctx, nil)
}

package call

import (
	"context"
	"time"
)

// Bounds is what may end a wait.
type Bounds struct {
	Until   context.Context // of the call, with its WaitAtMost
	Closing <-chan struct{} // when the session ends
}

// Over reports whether a bound has ended.
func (b *Bounds) Over() bool { return b.Until.Err() != nil || Closed(b.Closing) }

// Endures reports whether a call that began at begun goes on in an outage that began at failing: until a
// deadline of its own, or else for so long.
func (b *Bounds) Endures(failing, begun time.Time, long time.Duration) bool {
	if _, bounded := b.Until.Deadline(); bounded {
		return true
	}
	if failing.Before(begun) {
		failing = begun
	}
	return time.Since(failing) <= long
}

// Sleep waits for news, for d at most. news may be nil. ended: it was neither, but a bound.
func (b *Bounds) Sleep(d time.Duration, news <-chan struct{}) (heard, ended bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-news:
		return true, false
	case <-t.C:
		return false, false
	case <-b.Until.Done():
	case <-b.Closing:
	}
	return false, true
}

// Await receives from c, or reports false when a bound ended that.
func Await[T any](b *Bounds, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-b.Until.Done():
	case <-b.Closing:
	}
	return v, false
}

// LeavingTime bounds how long a wait that is over waits for Redis to learn it.
const LeavingTime = 100 * time.Millisecond

// AwaitLeaving lets a waiter return only when it has left its queue in Redis, if Redis answers in time: it
// should not be granted anything after its call has returned. The request itself goes on in the background,
// and Shutdown waits for it. gone may be nil.
func AwaitLeaving(gone, closing <-chan struct{}) {
	if gone == nil {
		return
	}
	t := time.NewTimer(LeavingTime)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	case <-closing:
	}
}

// Closed reports whether c is closed, of a channel on which nothing is sent.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

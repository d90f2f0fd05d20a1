package multilock

import "weak"

// OnRestart calls f whenever a call releases the members that it has, and starts over. restarts is the number
// of restarts of this call. Call OnRestart before the MultiLock is used.
func (l *MultiLock) OnRestart(f func(restarts int)) { l.restarted = f }

// Reachable returns a function that reports whether the garbage collector can still reach the inner quorum of
// q. The caller must not keep q.
func Reachable(q *Quorum) func() bool {
	inner := weak.Make(q.inner)
	return func() bool { return inner.Value() != nil }
}

package multilock

import "weak"

// OnRestart has f told whenever an acquisition gives back what it took and starts
// over, and how often it has by then. Set it before the MultiLock is used.
func (l *MultiLock) OnRestart(f func(restarts int)) { l.restarted = f }

// Reachable returns a function that reports whether anything still refers to what is inside the quorum. The
// caller must not keep q.
func Reachable(q *Quorum) func() bool {
	inner := weak.Make(q.inner)
	return func() bool { return inner.Value() != nil }
}

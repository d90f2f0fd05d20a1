package multilock

// OnRestart has f told whenever an acquisition gives back what it took and starts
// over, and how often it has by then. Set it before the MultiLock is used.
func (l *MultiLock) OnRestart(f func(restarts int)) { l.restarted = f }

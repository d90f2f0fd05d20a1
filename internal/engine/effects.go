package engine

import "time"

// effects collects those consequences of one event that must not happen under the mutex of the lock. These
// are requests to send, waiters to wake, contexts to cancel, observers to call and lines to log. Most events
// are handled in three steps:
//
//	fx := l.begin()  // locks l.mu
//	...              // changes the state of the lock, and adds effects
//	fx.commit()      // decides what follows (settle), unlocks l.mu, and carries out the effects
//
// The mutex is locked until commit, run or unlock. So each function with a parameter of type *effects is
// called under the mutex.
type effects struct {
	l    *lockState
	age  time.Duration // age of the session when the event began
	uses int           // change of the number of uses of l

	// closed means that the session is closed, and that its Shutdown does not wait for this event. So the
	// event sends no request, and a grant that is left in Redis ends with its lease.
	closed bool

	caller      *waiter    // the waiter that joins a lane in this event; nil means that none does
	ownAttempt  *attempt   // the attempt whose first request the goroutine of caller sends; nil means none
	unlocked    *Entry     // the entry that the event unlocks; nil means none
	ownRelease  *release   // the request that the Unlock of this event must send; nil means none
	withdrawn   *attempt   // the last attempt that the event withdrew; nil means none
	woken       *waiter    // the first waiter to wake; nextWoken links the others. nil means none
	lastWoken   *waiter    // the last waiter to wake
	attempts    []*attempt // attempts whose next requests are sent in the background
	calls       []func()   // functions to run one after the other, before waiters are woken
	backgrounds []func()   // functions to run in goroutines of their own, for which Shutdown waits
}

// begin locks the mutex for an event. If the event may send requests or run functions in the background, the
// caller must be counted by session.Begin, or must set fx.closed.
func (l *lockState) begin() effects {
	l.mu.Lock()
	return effects{l: l, age: l.s.Age()}
}

// wake adds an answered waiter to the list of the waiters that the method run has to wake.
func (fx *effects) wake(w *waiter) {
	if fx.woken == nil {
		fx.woken = w
	} else {
		fx.lastWoken.nextWoken = w
	}
	fx.lastWoken = w
}

// call adds a function that runs without the mutex. The function must not block.
func (fx *effects) call(f func()) { fx.calls = append(fx.calls, f) }

// background adds a function that runs in a goroutine of its own. The function may block. If fx.closed is
// set, background does nothing.
func (fx *effects) background(f func()) {
	if !fx.closed {
		fx.backgrounds = append(fx.backgrounds, f)
	}
}

// commit ends the event. It runs settle, unlocks the mutex, and carries out the effects. It does not block.
func (fx *effects) commit() {
	fx.l.settle(fx)
	fx.run()
}

// run unlocks the mutex and carries out the effects. The caller must send the requests of ownAttempt and
// ownRelease.
func (fx *effects) run() {
	l := fx.l
	l.mu.Unlock()
	if fx.uses > 0 {
		l.registry.change(l, fx.uses)
	}
	if fx.unlocked != nil {
		fx.unlocked.cancel((*unlocked)(fx.unlocked)) // before waiters wake, and before the release is sent
	}
	for _, f := range fx.calls {
		f()
	}
	for w := fx.woken; w != nil; {
		next := w.nextWoken
		w.nextWoken = nil // must be cleared before the waiter is awake, because its call may wait again
		w.news <- newsAnswered
		w = next
	}
	for _, a := range fx.attempts {
		l.s.Go(a.send)
	}
	for _, f := range fx.backgrounds {
		l.s.Go(f)
	}
	if fx.uses < 0 {
		l.registry.change(l, fx.uses)
	}
}

// unlock ends an event that has no effects and needs no decision of settle.
func (fx *effects) unlock() { fx.l.mu.Unlock() }

package engine

// waiter is an acquisition's place in a lane. It is answered once, or withdrawn.
type waiter struct {
	// What follows never changes once it waits, or listens.
	a     *acquisition
	ready chan told // nil until it listens; has room for one queued, and then the answer

	// The answer. It is set before the waiter is told so.
	g   *Grant // in which it has an entry
	err error

	// pool.mu guards the following.
	answered   bool
	in         *waiters // nil once it is answered or withdrawn
	prev, next *waiter
}

// told is what a waiter is told.
type told uint8

const (
	queued   told = iota // no answer yet: Redis has said that the wait may take longer
	answered             // g or err is there
)

// listen has it told. mu held.
func (w *waiter) listen() {
	w.ready = make(chan told, 2)
	if w.answered {
		w.ready <- answered
	}
}

// withdraw takes it out of its lane. False: it was answered already. mu held.
func (w *waiter) withdraw() bool {
	l := w.in
	if l == nil {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	l.n--
	w.in, w.prev, w.next = nil, nil, nil
	return true
}

// answer takes it out of its lane and answers it, unless it was. It never blocks. mu held.
func (w *waiter) answer(g *Grant, err error) {
	if w.withdraw() {
		w.g, w.err, w.answered = g, err, true
		if w.ready != nil {
			w.ready <- answered
		}
	}
}

// queued says that it waits in Redis' queue. Never two of these are pending at once, or there would be no
// room for the answer. mu held.
func (w *waiter) queued() {
	if w.ready != nil && len(w.ready) == 0 {
		w.ready <- queued
	}
}

// waiters are those of a lane, first come, first served. pool.mu guards them.
type waiters struct {
	first, last *waiter
	n           int
}

// push puts w, which is in no list, behind the last. mu held.
func (l *waiters) push(w *waiter) {
	w.in, w.prev, w.next = l, l.last, nil
	l.n++
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
}

package handover

// Handoff is the answer to a Waiter.
type Handoff[T any] struct {
	In     bool  // admitted; else what it waited for has changed: look again, or fail with Err
	Tenure T     // passed on: the waiter holds it next. Zero where it was admitted to compete
	Token  int64 // that goes with it; 0 where it was admitted to compete
	Err    error
}

// Passed reports whether the handoff carries a tenure.
func (h *Handoff[T]) Passed() bool { return h.Token != 0 }

// Told is what a Waiter is told.
type Told uint8

const (
	Queued   Told = iota // no answer yet: Redis has said that the wait may take longer
	Answered             // Handoff has the answer
)

// Waiter is one goroutine's place in a list.
type Waiter[T any] struct {
	// What follows never changes once it waits.
	For   any  // of the caller: on whose behalf it waits
	Fixed bool // wants a lease of its own choice, so no grant of another lease will do
	Ready chan Told

	answer   Handoff[T] // set before it is told so
	answered bool

	// The caller's mutex guards the following.
	Place      any      // of the caller: where it waits beside the list
	in         *List[T] // nil once it is answered or withdrawn
	prev, next *Waiter[T]
}

// NewWaiter is in no list yet.
func NewWaiter[T any]() *Waiter[T] {
	return &Waiter[T]{Ready: make(chan Told, 2)} // one Queued, one Answered
}

// Listen makes a Waiter that is no NewWaiter's one that can be told. The caller holds its mutex.
func (w *Waiter[T]) Listen() {
	w.Ready = make(chan Told, 2)
	if w.answered {
		w.Ready <- Answered
	}
}

// Answered reports whether there is an answer. The caller holds its mutex.
func (w *Waiter[T]) Answered() bool { return w.answered }

// Handoff is the answer, for the goroutine that was told that there is one.
func (w *Waiter[T]) Handoff() Handoff[T] { return w.answer }

// Next is the waiter behind this one.
func (w *Waiter[T]) Next() *Waiter[T] { return w.next }

// Withdraw takes w out of its list. False: it was answered or withdrawn already.
func (w *Waiter[T]) Withdraw() bool {
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

// Answer takes w out of its list and answers it. It never blocks.
func (w *Waiter[T]) Answer(h Handoff[T]) {
	if w.Withdraw() {
		w.answer, w.answered = h, true
		if w.Ready != nil {
			w.Ready <- Answered
		}
	}
}

// Queued says to w that it waits in Redis' queue. Never two of these are pending at once, or there would be
// no room for the answer.
func (w *Waiter[T]) Queued() {
	if w.Ready != nil && len(w.Ready) == 0 {
		w.Ready <- Queued
	}
}

// List is a wait list, first come, first served. The zero List is empty.
type List[T any] struct {
	first, last *Waiter[T]
	n           int
}

// First is the waiter that is next; nil if there is none.
func (l *List[T]) First() *Waiter[T] { return l.first }

// Len is how many wait.
func (l *List[T]) Len() int { return l.n }

// Push puts w, which is in no list, behind the last.
func (l *List[T]) Push(w *Waiter[T]) {
	w.in, w.prev, w.next = l, l.last, nil
	l.n++
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
}

// Unshift puts w, which is in no list, before the first.
func (l *List[T]) Unshift(w *Waiter[T]) {
	w.in, w.prev, w.next = l, nil, l.first
	l.n++
	if l.first != nil {
		l.first.prev = w
	} else {
		l.last = w
	}
	l.first = w
}

// Append moves all of more behind the last.
func (l *List[T]) Append(more *List[T]) {
	for w := more.first; w != nil; w = more.first {
		w.Withdraw()
		l.Push(w)
	}
}

// Prepend moves all of more before the first, in their order.
func (l *List[T]) Prepend(more *List[T]) {
	for w := more.last; w != nil; w = more.last {
		w.Withdraw()
		l.Unshift(w)
	}
}

// Recheck answers all that they look again.
func (l *List[T]) Recheck() { l.Answer(Handoff[T]{}) }

// Answer answers all.
func (l *List[T]) Answer(h Handoff[T]) {
	for l.first != nil {
		l.first.Answer(h)
	}
}

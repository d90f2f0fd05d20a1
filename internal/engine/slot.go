package engine

// slot lets one owner in at a time, first come, first served. The root slot of a
// lock admits who competes for it or holds it; the slot of a hold admits who
// nests under it. Guarded by lock.mu.
type slot struct {
	inside int    // stays; more than one only of goroutines of one Owner
	owner  *Owner // of who is inside
	queue  turns
}

// admission is the answer to a turn.
type admission struct {
	in    bool        // admitted; else what it stood behind has changed: look again, or fail with err
	st    *streak     // handed over: admitted to hold this streak next
	fence int64       // the token that goes with it
	with  []admission // the same of the company's locks, in its order
	err   error
	stood bool // no answer yet: Redis has said that the wait may take longer
}

// turn is one goroutine's place in a queue of this process.
type turn struct {
	a          *acquisition
	in         *turns // nil once it is answered or canceled
	prev, next *turn
	group      *group // that it waits with in Redis's queue, if it is there yet
	ready      chan admission
}

func newTurn(a *acquisition) *turn {
	return &turn{a: a, ready: make(chan admission, 2)} // one "stood", one answer
}

// turns is a queue.
type turns struct {
	first, last *turn
	n           int
}

func (q *turns) push(t *turn) {
	t.in, t.prev, t.next = q, q.last, nil
	q.n++
	if q.last != nil {
		q.last.next = t
	} else {
		q.first = t
	}
	q.last = t
}

// unshift puts t before the first.
func (q *turns) unshift(t *turn) {
	t.in, t.prev, t.next = q, nil, q.first
	q.n++
	if q.first != nil {
		q.first.prev = t
	} else {
		q.last = t
	}
	q.first = t
}

// remove takes t out of the queue that it is in. False: it was answered already.
func (t *turn) remove() bool {
	q := t.in
	if q == nil {
		return false
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		q.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		q.last = t.prev
	}
	q.n--
	t.in, t.prev, t.next = nil, nil, nil
	return true
}

// answer takes t out of its queue.
func (t *turn) answer(ad admission) {
	if t.remove() {
		t.ready <- ad
	}
}

// stand tells t that it stands in Redis's queue. Never two of these at once, or there would be
// no room for the answer.
func (t *turn) stand() {
	if len(t.ready) == 0 {
		t.ready <- admission{stood: true}
	}
}

// turnAway answers those of one owner, or all, that they look again.
func (q *turns) turnAway(o *Owner) {
	for t := q.first; t != nil; {
		next := t.next
		if o == nil || t.a.as == o {
			t.answer(admission{})
		}
		t = next
	}
}

// append moves all of more behind the last.
func (q *turns) append(more *turns) {
	for t := more.first; t != nil; t = more.first {
		t.remove()
		q.push(t)
	}
}

// enter admits the caller, or says that the slot is taken. share lets in who has
// the owner of those inside.
func (s *slot) enter(o *Owner, share bool) bool {
	if s.inside > 0 && !(share && o != nil && o == s.owner) {
		return false
	}
	s.inside++
	s.owner = o
	return true
}

// leave ends one stay. The last to leave admits the next: true if there is one.
func (s *slot) leave() bool {
	if s.inside--; s.inside > 0 {
		return false
	}
	s.owner = nil
	t := s.queue.first
	if t == nil {
		return false
	}
	s.inside, s.owner = 1, t.a.as
	t.answer(admission{in: true})
	return true
}

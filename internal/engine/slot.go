package engine

import (
	"container/list"
	"sync"
)

// Owner is one owner for all that runs below a context (WithOwner).
type Owner struct {
	mu   sync.Mutex // guards lost; a leaf
	lost map[lostKey]int
}

type lostKey struct {
	s    *Session
	lock string
}

// lose counts the owner's holds of a lock that were lost and not unlocked yet: as
// long as there are any, it must not take the lock afresh under code that
// believes that it never lost it.
func (o *Owner) lose(l *lock, n int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		o.lost = map[lostKey]int{}
	}
	k := lostKey{l.s, l.keys.lock()}
	if o.lost[k] += n; o.lost[k] <= 0 {
		delete(o.lost, k)
	}
}

func (o *Owner) hasLost(l *lock) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost[lostKey{l.s, l.keys.lock()}] > 0
}

// slot lets one owner in at a time, first come, first served. The root slot of a
// lock admits who competes for it or holds it; the slot of a hold admits who
// nests under it. Guarded by lock.mu.
type slot struct {
	inside int        // stays; more than one only of goroutines of one Owner
	owner  *Owner     // of who is inside
	queue  *list.List // of *turn; nil while nobody ever stood here, as mostly
}

// turn is one goroutine's place in a slot's queue.
type turn struct {
	owner *Owner
	at    *list.Element
	ready chan bool // receives once: true, admitted; false, what it stood behind has changed, look again
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

func (s *slot) join(o *Owner) *turn {
	if s.queue == nil {
		s.queue = list.New()
	}
	t := &turn{owner: o, ready: make(chan bool, 1)}
	t.at = s.queue.PushBack(t)
	return t
}

// leave ends one stay. The last to leave admits the next: true if there is one.
func (s *slot) leave() bool {
	if s.inside--; s.inside > 0 {
		return false
	}
	s.owner = nil
	if s.queue == nil || s.queue.Len() == 0 {
		return false
	}
	t := s.queue.Remove(s.queue.Front()).(*turn)
	t.at = nil
	s.inside, s.owner = 1, t.owner
	t.ready <- true
	return true
}

// cancel takes t out of the queue. False: it is too late, the answer is in t.ready.
func (s *slot) cancel(t *turn) bool {
	if t.at == nil {
		return false
	}
	s.queue.Remove(t.at)
	t.at = nil
	return true
}

// turnAway makes those in the queue look again: those of one owner, or all.
func (s *slot) turnAway(o *Owner) {
	if s.queue == nil {
		return
	}
	for e := s.queue.Front(); e != nil; {
		next := e.Next()
		if t := e.Value.(*turn); o == nil || t.owner == o {
			s.queue.Remove(e)
			t.at = nil
			t.ready <- false
		}
		e = next
	}
}

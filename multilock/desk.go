package multilock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wakeup"
)

// desk is where the goroutines of a process meet for one RedLock. One of them at a time deals with the
// servers, or holds the lock; the others wait here, first come, first served.
type desk struct {
	q    *quorum
	name string
	refs int // guarded by quorum.mu

	mu       sync.Mutex        // guards what follows; quorum's and grant's may be taken under it
	busy     bool              // a goroutine deals with the servers, or holds the lock
	holds    []*majority       // live ones
	entering []*vote           // calls that nest in a hold
	nesting  []*seat           // those that wait to, in their order
	waiting  []*seat           // in their order
	refused  bool              // the goroutine that deals with the servers has to wait for others
	unlock   wakeup.Pending    // releases under way
	seen     *failure.Sighting // of a holder in another process
	wanted   time.Time         // until then other processes are taken to want the lock
}

// seat is a goroutine that waits at a desk.
type seat struct {
	vote *vote
	turn chan *grant // has room for one: a grant that is passed on, nil for the turn to ask, or lookAgain
}

// lookAgain says that what a call waits to nest in is over.
var lookAgain = new(grant)

// desk finds or makes the desk of a name. Each has its leave.
func (q *quorum) desk(name string) *desk {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.desks[name]
	if d == nil {
		d = &desk{q: q, name: name}
		q.desks[name] = d
	}
	d.refs++
	return d
}

func (d *desk) keep() {
	d.q.mu.Lock()
	d.refs++
	d.q.mu.Unlock()
}

func (d *desk) drop() {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	if d.refs--; d.refs == 0 {
		delete(d.q.desks, d.name)
	}
}

// enter notes a hold. The desk is kept until that has exited and is dropped.
func (d *desk) enter(m *majority) {
	d.keep()
	d.mu.Lock()
	d.holds, d.refused = append(d.holds, m), false
	d.mu.Unlock()
}

// exit removes a hold that has ended.
func (d *desk) exit(m *majority) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds = slices.DeleteFunc(d.holds, func(other *majority) bool { return other == m })
	d.letIn()
}

// next gives the turn to the first that waits, or leaves it.
func (d *desk) next() {
	d.mu.Lock()
	d.refused = false
	if len(d.waiting) > 0 {
		d.waiting[0].turn <- nil
		d.waiting = d.waiting[1:]
	} else {
		d.busy = false
	}
	d.mu.Unlock()
}

// pass gives a grant to the first that waits, if it may have it.
func (d *desk) pass(g *grant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		return false
	}
	if v := d.waiting[0].vote; v.cfg.Lease != 0 || !g.passOn() { // it needs a grant of its own
		return false
	}
	d.waiting[0].turn <- g
	d.waiting = d.waiting[1:]
	return true
}

// quit ends a wait, or reports false if its turn has come.
func (d *desk) quit(s *seat) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiting, s)
	if i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
	return i >= 0
}

// known is the holder of the lock, as far as this process knows; nil if that is not known. mu held.
func (d *desk) known(begun time.Time) *failure.LockedError {
	if len(d.holds) > 0 {
		m := d.holds[0]
		return &failure.LockedError{Name: d.name, Holder: holderOf(d.q.home.ID()), About: d.q.home.About(),
			Remaining: max(0, time.Until(m.Deadline())), Hint: failure.SelfHint}
	}
	return d.seen.Locked(d.name, begun, nil)
}

// memory is how long a process that has handed a RedLock over remembers that others want it, so that a
// goroutine that comes back at once stands in line without a vote.
const memory = 10 * time.Millisecond

// remember notes that other processes want the lock.
func (d *desk) remember() {
	d.mu.Lock()
	d.wanted = time.Now().Add(memory)
	d.mu.Unlock()
	d.keep()
	time.AfterFunc(memory, d.drop)
}

package locktest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

const (
	lease   = 30 * time.Second // of what is renewed
	renewal = lease / 3        // how often it is renewed
)

// lock is what a Space knows of one name. All of it is guarded by Space.mu.
type lock struct {
	s      *Space
	name   string
	last   int64 // the last token
	grants int64 // number of the last acquisition, or occupation
	st     *grant
	queue  []*hold // that wait, in the order in which they came
}

// grant is the time from a grant of the lock until it is free again.
type grant struct {
	l     *lock
	by    *party
	owner string
	token int64
	holds []*hold     // live ones; none of another session's, nor while the lock only stays taken
	since time.Time   // when it began. Renewals are due at a third of the lease from there on
	until time.Time   // when it is over, unless renewed
	stays time.Time   // until when the lock stays taken, also when no hold is left
	timer *time.Timer // for until; nil before a fixed lease was alone
}

// hold is one entry, or a goroutine that waits for it.
type hold struct {
	l        *lock
	ctx      context.Context
	cancel   context.CancelCauseFunc
	lease    time.Duration // of its own choice, not renewed; 0: renewed
	since    time.Time     // when it was asked for
	answered chan error    // ends the wait; nil: it is held
	// Guarded by Space.mu:
	number   int64 // of the acquisition
	newcomer bool  // it nests in no hold, and stands in the queue of the lock
	st       *grant
	outer    *hold // the live hold that it is nested in
	err      error // why it is over
	unlocked bool
}

// enter locks the Space and ends what should have ended by now, and returns what unlocks it.
func (l *lock) enter() (leave func()) {
	l.s.mu.Lock()
	l.expire() // its timer may be late
	return l.s.mu.Unlock
}

func (l *lock) fail(err error) error { return failure.Named(l.name, err) }

func (l *lock) owner(by *party, number int64) string {
	return by.session + ":" + strconv.FormatInt(number, 10)
}

// descent is the key by which a hold of a lock finds, in its context, the nearest live one that it nests in.
type descent struct {
	l    *lock
	lost bool // it descends from one that was lost
}

// Find is for acquisitions below, which have locked the Space.
func (h *hold) Find(key any) any {
	d, ok := key.(*descent)
	switch {
	case !ok || d.l != h.l:
	case h.err == nil:
		return h
	case h.err == rlock.ErrLost:
		d.lost = true
	}
	return nil
}

func (h *hold) Context() context.Context { return h.ctx }

// Forgotten changes nothing: no collector ends the holds of a Space.
func (h *hold) Forgotten() {}

// admit makes h a live hold if it may be. With neither that nor an error it has to wait.
func (l *lock) admit(h *hold) (in bool, err error) {
	var outer *hold
	if !h.newcomer {
		d := descent{l: l}
		if outer, _ = h.ctx.Value(&d).(*hold); outer == nil && d.lost {
			return false, l.fail(rlock.ErrLost)
		}
		h.newcomer = outer == nil
	}
	// Holds that nest in the same one exclude each other.
	beside := func(other *hold) bool { return other.outer == outer }
	switch {
	case l.st == nil:
		l.st = l.newGrant(here, h.number)
	case len(l.st.holds) == 0 || slices.ContainsFunc(l.st.holds, beside):
		return false, nil
	}
	st := l.st
	h.st, h.outer = st, outer
	st.extend(cmp.Or(h.lease, lease))
	st.holds = append(st.holds, h)
	st.arm()
	return true, nil
}

// serve lets in the goroutines that may enter now.
func (l *lock) serve() {
	if l.s.outage != nil {
		return // no waiter is told
	}
	l.queue = slices.DeleteFunc(l.queue, func(h *hold) bool {
		in, err := l.admit(h)
		if in || err != nil {
			h.answered <- err // has room, so this does not block
		}
		return in || err != nil
	})
}

// newGrant makes one with a token larger than all before.
func (l *lock) newGrant(by *party, number int64) *grant {
	l.last = max(l.last+1, time.Now().UnixMicro())
	return &grant{l: l, by: by, owner: l.owner(by, number), token: l.last, since: time.Now()}
}

// leave ends a live hold. What is nested in it goes on under what it was nested in.
func (l *lock) leave(h *hold) {
	st := h.st
	st.until = st.deadline() // if nothing renews it any more, the last renewal counts
	st.holds = slices.DeleteFunc(st.holds, func(other *hold) bool { return other == h })
	for _, nested := range st.holds {
		if nested.outer == h {
			nested.outer = h.outer
		}
	}
	h.err = rlock.ErrNotHeld
	h.cancel((*unlockedHold)(h))
	switch {
	case len(st.holds) > 0:
	case time.Now().Before(st.stays):
		st.until = st.stays
	default:
		l.st = nil
	}
	st.arm() // stops the timer if the grant is over
	l.serve()
}

// unlockedHold is a hold as the cause with which its Unlock ends its context.
type unlockedHold hold

func (u *unlockedHold) Error() string { return failure.UnlockedText("", u.l.name) }
func (u *unlockedHold) Unwrap() error { return failure.ErrUnlocked }

// pass takes the lock from its holder, if it has one, and gives it to next; nil: to the first that waits.
func (l *lock) pass(next *grant) {
	st := l.st
	l.st = next
	if st != nil {
		for _, h := range st.holds {
			h.err = rlock.ErrLost
			h.cancel(h.err)
		}
		st.arm()
	}
	l.serve() // those below a hold that was lost learn it
}

// expire ends a grant whose lease is over.
func (l *lock) expire() {
	if st := l.st; st != nil && !time.Now().Before(st.deadline()) {
		l.pass(nil)
	}
}

// renewed reports whether some hold wants the lease renewed. Another session does for as long as it likes.
func (st *grant) renewed() bool {
	return st.by != here || slices.ContainsFunc(st.holds, func(h *hold) bool { return h.lease == 0 })
}

// deadline is until when the lease is valid to the holder.
func (st *grant) deadline() time.Time {
	if !st.renewed() {
		return st.until
	}
	// As if each renewal had come when it was due. No timer is needed for that.
	return later(st.until, st.since.Add(time.Since(st.since).Truncate(renewal)+protocol.Valid(lease)))
}

// extend makes the lease last at least d from now.
func (st *grant) extend(d time.Duration) {
	st.until = later(st.until, time.Now().Add(protocol.Valid(d)))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// arm has a timer run only while the lease can run out.
func (st *grant) arm() {
	if st.timer != nil {
		st.timer.Stop()
	}
	if st.l.st == st && !st.renewed() {
		st.timer = time.AfterFunc(time.Until(st.until), func() { st.l.enter()() }) // enter ends what is over
	}
}

func (h *hold) Name() string { return h.l.name }

func (h *hold) Token() int64 { return h.st.token }

func (h *hold) Parts() []*handle.Hold { return nil }

func (h *hold) Deadline() time.Time {
	defer h.l.enter()()
	return h.st.deadline()
}

func (h *hold) Err() error {
	defer h.l.enter()()
	return h.err
}

func (h *hold) Extend(ctx context.Context, d time.Duration) error {
	defer h.l.enter()()
	switch {
	case h.err != nil:
		return h.l.fail(h.err)
	case ctx.Err() != nil:
		return h.l.fail(failure.OfContext(ctx))
	case h.l.s.outage != nil:
		return h.l.fail(h.l.s.outage)
	}
	h.st.extend(d)
	h.st.arm()
	return nil
}

// Stay leaves the lock taken until d from now.
func (h *hold) Stay(d time.Duration) {
	defer h.l.enter()()
	h.st.stays = later(h.st.stays, time.Now().Add(d))
}

// WaitReplicas finds that all replicas have it.
func (h *hold) WaitReplicas(ctx context.Context, _ int) error { return h.Extend(ctx, 0) }

func (h *hold) Unlock(context.Context) error {
	l := h.l
	defer l.enter()()
	again := h.unlocked
	h.unlocked = true
	switch {
	case again:
		return l.fail(rlock.ErrNotHeld)
	case h.err != nil:
		return l.fail(h.err)
	}
	l.leave(h)
	if l.s.outage != nil { // the hold is over here all the same
		return l.fail(l.s.outage)
	}
	return nil
}

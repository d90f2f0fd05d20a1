package engine

import (
	"strconv"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// newAttempt begins a try for the lock in Redis, with an id that is never used again.
func (s *Session) newAttempt() grant {
	var id [64]byte
	owner := string(strconv.AppendInt(append(append(id[:0], s.id...), ':'), s.attempts.Add(1), 10))
	return grant{owner: owner, token: ""} // the token is not known until granted
}

// maxVoid bounds how often in a row a request may come too late.
const maxVoid = 8

// compete asks Redis until the lock is granted or the wait ends. Whoever
// competes occupies the root slot, and leaves it, or leaves it to the hold, or
// to the goroutine that gives back.
func (a *acquisition) compete() (*hold, error) {
	l := a.l
	s := l.s
	a.grant, a.notAfter = s.newAttempt(), 0
	var outage time.Time // since when Redis does not answer
	for try, void := 0, 0; ; {
		if err := a.letOthersFirst(); err != nil {
			a.leaveRoot()
			return nil, err
		}
		if err := a.with.gather(); err != nil {
			a.leaveRoot()
			return nil, err
		}
		o, err := a.exchange(nil)
		if err != nil {
			return nil, err // exchange's goroutine has the root slot now
		}
		r, _ := parse(o.Reply)
		switch {
		case o.Err != nil && a.ended():
			a.leaveRoot()
			return nil, a.over(false)
		case o.Err != nil:
			if outage.IsZero() {
				outage = o.Sent
			}
			if !a.answered || !wire.Judge(o.Err).Transient || time.Since(outage) > s.Lease {
				a.leaveRoot()
				return nil, l.keys.failed(o.Err)
			}
			try++
			if err := a.sleep(wire.Backoff(try, 20*time.Millisecond, time.Second)); err != nil {
				a.leaveRoot()
				return nil, err
			}
			continue
		case r.status == 'V':
			if void++; void > maxVoid {
				a.leaveRoot()
				return nil, a.fail(tooLate(a.lease()))
			}
			continue
		case r.status == 'S' && void < maxVoid: // granted, and forced before we heard of it
			void++
			a.grant, a.notAfter = s.newAttempt(), 0
			continue
		case r.status == 'G':
			h, begun, err := a.takeAll(o.Sent, r.token)
			if begun {
				return h, err
			}
			if err == errTooLate && void < maxVoid {
				void++
				a.grant, a.notAfter = s.newAttempt(), 0
				continue
			}
			l.pass()
			return nil, a.fail(err)
		case r.status == 'H' && a.with.another():
			err := a.with.locked(r)
			a.leaveRoot()
			return nil, Public(err)
		case r.status != 'H':
			if a.late == 0 { // whatever it says, it may have been granted
				a.settle()
			}
			a.leaveRoot()
			return nil, l.keys.failed(wire.Unexpected(o.Reply))
		}
		a.answered, outage, try, void = true, time.Time{}, 0, 0
		l.mu.Lock()
		l.refused(r)
		l.mu.Unlock()
		a.contested = true
		if a.try {
			a.leaveRoot()
			return nil, Public(r.locked(l.keys.Name))
		}
		if l.sub == nil {
			l.sub = s.subscribe(l.keys.channel.(string))
		}
		a.sayWaiting()
		if err := a.rest(r.left); err != nil {
			a.leaveRoot()
			return nil, err
		}
	}
}

// take makes a streak and a hold of what Redis granted, not before base. If it cannot
// begin, the grant is given back, and the root slot is still the caller's. Else, with
// neither a hold nor an error, it has ended already: look again.
func (a *acquisition) take(base time.Time, token string) (h *hold, begun bool, err error) {
	l := a.l
	st := l.newStreak(a.grant, token, a.cfg.Lease != 0)
	st.contested = a.contested
	l.keep()
	l.mu.Lock()
	err = st.begin(base.Add(valid(a.lease())), a.as)
	l.mu.Unlock()
	if err == nil {
		h, err = a.succeed(admission{st: st, fence: st.fence})
		return h, true, err
	}
	l.drop()
	l.settle(a.grant, time.Now().Add(a.lease()), nil)
	return nil, false, err
}

// restTime is by how much a session that had its turn lets those go first who were
// told that the lock is free: longer than their requests take in one data center.
const restTime = time.Millisecond

// restMemory is for how long that is remembered where nobody here waits.
const restMemory = 10 * restTime

// crowd is the largest number of clients that may all ask at once after a release, this session included. With no more than
// that, a session whose turn was a single hold does not let others go first: beside one with long turns its share would be small.
const crowd = 2

// letOthersFirst takes what was heard of the lock, so that what comes from here on is news; and, where it is
// the turn of others, sleeps until they have had it, or seem not to want it.
func (a *acquisition) letOthersFirst() error {
	l := a.l
	for l.sub != nil {
		l.due -= len(l.sub.Take())
		if l.due <= 0 || a.try {
			break
		}
		heard, err := a.sleepFor(restTime, l.sub.ready)
		if err != nil || !heard {
			return err
		}
		a.contested = true
	}
	return nil
}

// rest waits until the lock may be free.
func (a *acquisition) rest(left time.Duration) error {
	if a.ballot != nil {
		return a.ballot.rest(a)
	}
	if left < 0 { // no expiry: not a lock of ours, look again now and then
		left = a.l.s.Lease
	}
	return a.sleep(min(left, maxRest) + time.Millisecond)
}

// sleep waits for news of the lock, at most for d. Its error says that the wait is over.
func (a *acquisition) sleep(d time.Duration) error {
	if a.l.sub != nil {
		_, err := a.sleepFor(d, a.l.sub.ready)
		return err
	}
	_, err := a.sleepFor(d, nil)
	return err
}

func (a *acquisition) sleepFor(d time.Duration, news <-chan struct{}) (heard bool, err error) {
	a.with.scatter()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-news:
		return true, nil
	case <-t.C:
		return false, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-a.l.s.closing:
	}
	return false, a.over(false)
}

// uncancelable: nothing but the answer, or the session's end, ends its wait. It need
// not be free to leave while a request is under way, which saves a goroutine.
func (a *acquisition) uncancelable() bool { return a.ctx.Done() == nil && a.expired == nil }

package multilock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Several locks of one session can be taken by one request, all or none, where their scripts and the server allow it:
// a unit. One acquisition leads: it waits and asks for its own lock as ever, and what it asks for includes the other
// locks of its unit. While it waits, it occupies nothing of them.

// unit is the mutex.Unit of several locks. It belongs to the leading acquisition.
type unit struct {
	members []member
	locks   []*mutex.Lock // of the members; does not change, so that others may look
	claimed []*member     // whose root gates are entered, for the request under way
	which   int           // the lock that the reply speaks of: 1 for the leader's, from 2 on those claimed
}

// member is one of the other locks. Its attempt is the leader's.
type member struct {
	*mutex.Acquisition
	beside bool        // no request names it: it comes along only where all is passed on in memory
	asked  bool        // a request of the present attempt named it
	got    *mutex.Hold // what came of it
}

// maxUnit bounds how many locks are asked of one script, which keeps Redis from serving others.
const maxUnit = 100

// group is equal for locks that one request can take together.
type group struct {
	s     *session.Session
	kind  string
	tag   string
	lease time.Duration
}

// groupOf reports false for a lock that is always asked for alone.
func groupOf(s *session.Session, kind *mutex.Kind, keys *protocol.Keys) (g group, ok bool) {
	if kind.LockSeveral == nil {
		return group{}, false
	}
	g = group{s: s, kind: kind.Letter}
	if !s.Link.Single() {
		g.tag = keys.HashTag()
	}
	return g, true
}

// acquireWith is Acquire of m, and takes others of the same group along by the same request: all or none. It returns
// their holds behind its own; nil for one that cannot come along because ctx holds it already: it must be acquired by
// itself. If one of them is taken, the error is a *failure.LockedError of its name, at once.
//
// Behind these it returns the holds of those beside, of any group but of no Ordered kind, if it was passed all in
// memory, and else nil or nothing.
func acquireWith(ctx context.Context, m *mutex.Mutex, cfg mutex.Config, try bool, with, beside []*mutex.Mutex) (context.Context, []*mutex.Hold, error) {
	if err := m.Check(); err != nil {
		return ctx, nil, err
	}
	u := &unit{members: make([]member, len(with)+len(beside))}
	for i, w := range slices.Concat(with, beside) {
		l, err := w.Enter()
		if err != nil && i >= len(with) { // its own acquisition will say so
			u.members, u.locks = u.members[:len(with)], u.locks[:len(with)]
			break
		}
		if err != nil {
			return ctx, nil, failure.Named(w.Name(), err)
		}
		if i < len(with) {
			defer l.Leave()
		} else { // its session need not wait for a goroutine that waits in another one: what is passed on is counted by itself
			defer l.Drop()
			l.S().End()
		}
		u.locks = append(u.locks, l)
		u.members[i] = member{Acquisition: mutex.NewAcquisition(ctx, l, cfg, mutex.Alone), beside: i >= len(with)}
	}
	e, err := m.AcquireUnit(ctx, cfg, try, u)
	if err != nil {
		return ctx, nil, err
	}
	holds := []*mutex.Hold{e.Handle()}
	for i := range u.members {
		hd := u.members[i].got
		if hd != nil {
			mutex.Watch(hd)
		}
		holds = append(holds, hd)
	}
	return mutex.Context(holds[0]), holds, nil
}

// Along is how many other locks it wants.
func (u *unit) Along() int { return len(u.locks) }

// Claim enters the root gates of the members. One that only tries waits for unlocks in the background, as for its own lock.
func (u *unit) Claim(a *mutex.Acquisition) error {
	if u.claimed != nil {
		return nil
	}
	for i := range u.members {
		m := &u.members[i]
		if m.beside {
			continue
		}
		switch in, err := m.claim(a); {
		case err != nil:
			return err
		case in:
			u.claimed = append(u.claimed, m)
		}
	}
	for _, m := range u.claimed {
		m.asked = true
	}
	return nil
}

// claim reports false for a re-entry, which no request for a free lock can make.
func (m *member) claim(a *mutex.Acquisition) (bool, error) {
	l := m.Lock
	for {
		l.Mu.Lock()
		again := !m.Newcomer()
		in := !again && l.Root.Enter(m.Owner, false)
		over, err := l.Unlocking(), m.LockedHere()
		l.Mu.Unlock()
		switch {
		case again || in:
			return in, nil
		case !a.Try || over == nil:
			return false, failure.Public(err)
		}
		if _, ok := wakeup.Await(&a.Bounds, over); !ok {
			return false, m.WhyOver(false)
		}
	}
}

// Withdraw leaves them.
func (u *unit) Withdraw() {
	for _, m := range u.claimed {
		m.Lock.Pass()
	}
	u.claimed = nil
}

// Keep holds on to the claimed locks.
func (u *unit) Keep() {
	for _, m := range u.claimed {
		m.Lock.Keep()
	}
}

// Script is the one that the request runs.
func (u *unit) Script(a *mutex.Acquisition) *wire.Script {
	if len(u.claimed) == 0 {
		return a.Lock.Kind.Lock
	}
	return a.Lock.Kind.LockSeveral
}

// Keys are those of all that is claimed.
func (u *unit) Keys(a *mutex.Acquisition) *protocol.Keys {
	if len(u.claimed) == 0 {
		return a.Lock.Keys
	}
	more := make([]*protocol.Keys, len(u.claimed))
	for i, m := range u.claimed {
		more[i] = m.Lock.Keys
	}
	return a.Lock.Keys.And(more)
}

// Answered takes in which lock a reply speaks of, where it is not all of them.
func (u *unit) Answered(o wire.Outcome) wire.Outcome {
	number, rest, _ := strings.Cut(o.Reply, " ")
	if i, err := strconv.Atoi(number); err == nil {
		u.which, o.Reply = i, rest
	}
	return o
}

// Refused is the error if a member is taken.
func (u *unit) Refused(r protocol.Answer) error {
	if u.which < 2 || u.which >= 2+len(u.claimed) {
		return nil
	}
	return failure.Public(r.Locked(u.claimed[u.which-2].Lock.Keys.Name))
}

// Granted takes the members first, and the leader's lock last, whose context carries all. Where it returns no hold,
// nothing of the members is held, or claimed, any more.
func (u *unit) Granted(a *mutex.Acquisition, base time.Time, tokens string) (e *mutex.Entry, begun bool, err error) {
	token, tokens, _ := strings.Cut(tokens, " ")
	ctx, claimed, taken := a.Ctx, u.claimed, []*member(nil)
	u.claimed = nil
	for _, m := range claimed {
		m.asked = false
		if err != nil {
			m.Lock.ReleaseUntilDone(a.Grant, time.Now().Add(a.Lease()), nil)
			m.Lock.Pass()
			continue
		}
		var t string
		t, tokens, _ = strings.Cut(tokens, " ")
		m.Ctx, m.Grant = a.Ctx, a.Grant
		m.Confirmed()
		var got *mutex.Entry
		got, begun, err = m.Take(base, t)
		switch {
		case got != nil:
			m.got = got.NewHandle()
			taken = append(taken, m)
			a.Ctx = mutex.Context(m.got)
			continue
		case !begun:
			m.Lock.Pass()
		case err == nil: // lost at once
			err = mutex.ErrTooLate
		}
	}
	if err == nil {
		if e, begun, err = a.Take(base, token); e != nil {
			confirmed(taken)
			return e, true, nil
		}
	} else {
		begun = false
		a.ReleaseUntilDone()
	}
	a.Ctx = ctx
	unlockTaken(taken)
	return nil, begun, err
}

// Inherit makes holds of what was passed on: the members first, as in Granted.
func (u *unit) Inherit(a *mutex.Acquisition, h mutex.Handoff) (*mutex.Entry, error) {
	defer inherited(h)
	ctx, taken := a.Ctx, []*member(nil)
	for i := range h.With {
		m := &u.members[i]
		m.Ctx = a.Ctx
		if !m.beside {
			m.Confirmed()
		}
		got, err := m.Succeed(h.With[i])
		if got == nil {
			a.Ctx, h.With = ctx, h.With[i+1:]
			unlockTaken(taken)
			decline(a, h)
			return nil, err
		}
		m.got = got.NewHandle()
		taken, a.Ctx = append(taken, m), mutex.Context(m.got)
	}
	e, err := a.Succeed(h)
	if e == nil {
		a.Ctx = ctx
		unlockTaken(taken)
		return nil, err
	}
	confirmed(slices.DeleteFunc(taken, func(m *member) bool { return m.beside }))
	return e, nil
}

// Decline passes on what was passed on to an acquisition that does not want it any more.
func (u *unit) Decline(a *mutex.Acquisition, h mutex.Handoff) (gone <-chan struct{}) {
	defer inherited(h)
	return decline(a, h)
}

func decline(a *mutex.Acquisition, h mutex.Handoff) (gone <-chan struct{}) {
	for _, w := range h.With {
		w.Tenure.Decline(a.Ctx, nil)
	}
	return h.Tenure.Decline(a.Ctx, nil)
}

// inherited: what was reserved is counted in the work of its session until it is inherited, or declined.
func inherited(h mutex.Handoff) {
	for _, w := range h.With {
		w.Tenure.Lock.S().End()
	}
}

// RollBack releases what the claimed locks were granted, and leaves all root gates.
func (u *unit) RollBack(a *mutex.Acquisition, granted bool) {
	claimed := u.claimed
	if granted {
		all := a.Lock.ReleaseRequest(a.Grant)
		for _, m := range claimed {
			all.Script = a.Lock.Kind.ReleaseSeveral
			all.More = append(all.More, m.Lock.ReleaseRequest(a.Grant))
		}
		if o := a.Lock.Store().Release(a.Lock.S().Ctx, &all, 1); o.Err != nil {
			u.ReleaseUntilDone(a)
		} else {
			for _, m := range claimed {
				m.asked = false
			}
			u.releaseMembers(a)
		}
	}
	a.Lock.Pass()
	u.Withdraw()
	for _, m := range claimed {
		m.Lock.Drop()
	}
}

// ReleaseUntilDone ends an attempt on all locks that its requests named, in the background.
func (u *unit) ReleaseUntilDone(a *mutex.Acquisition) {
	a.ReleaseUntilDone()
	u.releaseMembers(a)
}

func (u *unit) releaseMembers(a *mutex.Acquisition) {
	for i := range u.members {
		if m := &u.members[i]; m.asked {
			m.asked = false
			m.Lock.ReleaseUntilDone(a.Grant, time.Now().Add(a.Lease()), nil)
		}
	}
}

// confirmed: their grants came before the leader's confirmation, on the same server.
func confirmed(taken []*member) {
	for _, m := range taken {
		mutex.EntryOf(m.got).Confirm()
	}
}

// unlockTaken unlocks what the members got, in the background.
func unlockTaken(taken []*member) {
	for _, m := range taken {
		got := m.got
		m.got = nil
		s := m.Lock.S()
		s.Go(func() { _ = got.Unlock(s.Ctx) })
	}
}

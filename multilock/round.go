package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// settleTime is for how long, at least, a vote that is decided waits for the others, which mostly answer at
// the same time. With all of an odd number of parts the token is safe, and what comes later has to be
// confirmed.
const settleTime = 2 * time.Millisecond

// round asks all servers at once, by TryLock or by Lock, and returns when a majority has granted, or cannot
// any more. In the first case the rest becomes part of the hold, else it is given back.
func (v *vote) round(try bool) (*entry, error) {
	q := v.q
	c := v.newCount()
	while, stop := context.WithCancel(v.bounds.Until)
	answers := ask(q, q.all, func(i int) (*engine.Entry, error) { return v.admitted(i, try, while, c) })
	c.left = len(q.servers)
	start, decided := time.Now(), false
	patience := time.NewTimer(q.timeout)
	defer patience.Stop()
	if !try {
		patience.Stop() // until a minority is granted, which keeps no other out for long
	}
	for {
		select {
		case a := <-answers:
			if v.take(c, a) && c.granted == 1 && !try {
				start = time.Now() // now the wait for the others begins
				patience.Reset(q.timeout)
			}
		case <-patience.C:
			if c.granted < q.need && !try {
				return v.failed(c, answers, stop, errMinority)
			}
			return v.decide(c, answers, stop)
		case <-v.bounds.Until.Done():
			return v.failed(c, answers, stop, nil)
		}
		switch {
		case c.granted < q.need && c.granted+c.left >= q.need: // too early to say
		case c.left == 0 || v.restFails(c):
			return v.decide(c, answers, stop)
		case !decided:
			decided = true
			patience.Reset(min(q.timeout, max(settleTime, time.Since(start))))
		}
	}
}

// take notes an answer, and reports whether it is a grant.
func (v *vote) take(c *count, a answer[*engine.Entry]) bool {
	c.left--
	if c.errs[a.i] = v.judge(a); c.errs[a.i] == nil {
		c.parts[a.i] = a.value
		c.granted++
	} else {
		v.giveBack([]*engine.Entry{a.value})
	}
	return c.parts[a.i] != nil
}

// count is what is known of a round.
type count struct {
	hold    atomic.Pointer[majority] // that it has become
	parts   []*engine.Entry          // by server; nil: it has not granted
	errs    []error                  // by server
	granted int
	left    int // servers that have not answered
}

func (v *vote) newCount() *count {
	n := len(v.q.servers)
	return &count{parts: make([]*engine.Entry, n), errs: make([]error, n)}
}

// token is the hold's: the smallest number that the tokens of a majority do not exceed. That majority shares
// a server with that of each hold before, so it is higher than all of these.
func (c *count) token(need int) int64 {
	var tokens []int64
	for _, p := range c.parts {
		if p != nil {
			tokens = append(tokens, p.Token())
		}
	}
	slices.Sort(tokens)
	return tokens[need-1]
}

// low are the servers whose later grants could have a token that is not higher.
func (c *count) low(token int64) (low []int) {
	for i, p := range c.parts {
		if p != nil && p.Token() < token {
			low = append(low, i)
		}
	}
	return low
}

// safe: the later grants of a majority have higher tokens.
func (c *count) safe(need int) bool { return c.granted-len(c.low(c.token(need))) >= need }

// restFails: those that have not answered are known not to.
func (v *vote) restFails(c *count) bool {
	for i, s := range v.q.servers {
		if c.parts[i] == nil && c.errs[i] == nil && !s.failing() {
			return false
		}
	}
	return true
}

// inUse is what a server says of the holder, as what all say of it.
func inUse(locked *rlock.LockedError) *failure.LockedError {
	e := failure.LockedError(*locked)
	e.Holder = holderOf(e.Holder)
	return &e
}

// ahead is by how much a token may be above its server's clock. One that is further ahead was not made by
// Lockline.
const ahead = 24 * time.Hour

const noVote = "a server of a RedLock has no vote"

// credible is why a token is no vote; nil if it is one.
func (s *server) credible(token int64) error {
	if now := s.session.Clock.Now(time.Now()); now == 0 || token <= now+ahead.Microseconds() {
		return nil
	}
	return fmt.Errorf("the token %d is more than a day above the clock of its server", token)
}

// judge is why an answer is no grant; nil if it is one.
func (v *vote) judge(a answer[*engine.Entry]) error {
	s := v.q.servers[a.i]
	if a.err == nil {
		err := s.credible(a.value.Token())
		if err != nil {
			v.q.warn(s, noVote, v.l.name, err)
			err = s.named(err)
		}
		return err
	}
	var locked *rlock.LockedError
	switch {
	case errors.As(a.err, &locked) && v.q.twice(s, locked.Holder):
		v.q.warn(s, noVote, v.l.name, errTwice)
		return s.named(errTwice)
	case errors.As(a.err, &locked) && (locked.Holder != "" || !s.failing()):
		return a.err
	case locked != nil: // a request of this session is under way there, for a long time
		return s.late()
	}
	if errors.Is(a.err, failure.ErrNoAnswer) { // this round ended first
		return s.late()
	}
	if errors.As(a.err, new(*protocol.ValueError)) {
		v.q.warn(s, noVote, v.l.name, a.err)
	}
	return s.named(a.err)
}

// decide makes a hold of a majority, once its token is safe.
func (v *vote) decide(c *count, answers <-chan answer[*engine.Entry], stop func()) (*entry, error) {
	if c.granted < v.q.need {
		return v.failed(c, answers, stop, nil)
	}
	token := c.token(v.q.need)
	if !c.safe(v.q.need) && !v.raise(c, token) {
		return v.failed(c, answers, stop, errToken)
	}
	for _, i := range c.low(token) { // a majority is enough, but a server may forget
		c.parts[i].Reserve(token)
	}
	e := v.hold(c, token, stop)
	if e == nil {
		return v.failed(c, answers, stop, engine.ErrTooLate)
	}
	v.complete(e.m, c, answers)
	return e, nil
}

// complete has what a majority did not wait for become part of the hold.
func (v *vote) complete(m *majority, c *count, answers <-chan answer[*engine.Entry]) {
	q := v.q
	for i, p := range c.parts {
		if p != nil && p.Err() != nil {
			m.lost(i) // it may have been before the hold was told of it
		} else if c.errs[i] != nil {
			m.fetch(i, q.timeout, "")
		}
	}
	if c.left == 0 {
		return
	}
	left := c.left
	q.home.Go(func() {
		for range left {
			a := <-answers
			switch err := v.judge(a); {
			case err != nil && a.value != nil:
				_ = a.value.Unlock(context.Background())
			case err == nil && !m.admit(a.i, a.value):
				m.fetch(a.i, 0, "")
			case err != nil:
				m.fetch(a.i, q.timeout, "")
			}
		}
	})
}

// raise has the servers of a bare majority grant no token up to this one any more.
func (v *vote) raise(c *count, token int64) bool {
	q := v.q
	low := c.low(token)
	missing := q.need - (c.granted - len(low))
	raised := ask(q, low, func(i int) (struct{}, error) {
		return struct{}{}, c.parts[i].Raise(v.values, token)
	})
	late := time.NewTimer(q.timeout)
	defer late.Stop()
	for range low {
		select {
		case a := <-raised:
			if a.err == nil {
				missing--
			}
		case <-late.C:
			return false
		}
		if missing == 0 {
			return true
		}
	}
	return false
}

// failed gives back what was granted, also what comes later, and says why there is no majority: for a reason,
// or by the answers.
func (v *vote) failed(
	c *count, answers <-chan answer[*engine.Entry], stop func(), reason error,
) (*entry, error) {
	q := v.q
	stop()
	v.giveBack(c.parts)
	if v.bounds.Over() { // nothing should be granted after the call has returned; and they know the holder
		late := time.After(call.LeavingTime)
		for c.left > 0 && late != nil {
			select {
			case a := <-answers:
				v.take(c, a)
				v.giveBack([]*engine.Entry{c.parts[a.i]})
			case <-late:
				late = nil
			}
		}
	}
	if left := c.left; left > 0 {
		q.home.Go(func() {
			for range left {
				a := <-answers
				_ = v.judge(a)
				v.giveBack([]*engine.Entry{a.value})
			}
		})
	}
	return nil, v.why(c, reason)
}

// giveBack unlocks some parts, and does not wait for that.
func (v *vote) giveBack(parts []*engine.Entry) {
	for _, p := range parts {
		if p != nil {
			tell := p.Leave()
			v.q.home.Go(func() { _ = tell(context.Background()) })
		}
	}
}

// why is the error of a round without a majority: held by the one that most servers name, or that too few
// answered.
func (v *vote) why(c *count, reason error) error {
	q := v.q
	known, own, final := c.granted, 0, 0
	var failing []error
	late := true
	votes := map[string]int{}
	for i, s := range q.servers {
		var locked *rlock.LockedError
		switch err := c.errs[i]; {
		case errors.As(err, &locked) && locked.Holder == "":
			own++ // another goroutine of this session asks there
		case locked != nil:
			known++
			holder := inUse(locked)
			if votes[holder.Holder]++; len(votes) == 1 && known == c.granted+1 ||
				votes[holder.Holder] > votes[v.holder.Holder] {
				v.holder = holder
			}
		case errors.Is(err, failure.ErrClosed):
			return failure.Named(v.l.name, failure.ErrClosed)
		case err != nil:
			failing = append(failing, err)
			if !errors.Is(err, errLate) {
				late = false
				if !wire.Judge(err).Transient {
					final++
				}
			}
		case c.parts[i] == nil:
			failing = append(failing, s.late())
		}
	}
	if len(votes) > 0 {
		v.taken(true)
		now := time.Now()
		v.d.seen.Store(&failure.Sighting{Holder: v.holder.Holder, About: v.holder.About,
			At: now, Until: now.Add(v.holder.Remaining)})
	}
	v.hopeless = final > len(q.servers)-q.need
	over := v.bounds.Over()
	if known >= q.need {
		v.trouble = nil
	} else if len(failing) > 0 && (!over || v.trouble == nil || !late) {
		// Else an earlier round has said more.
		v.trouble = q.noMajority(known, failing)
	}
	switch {
	case over:
		return v.whyOver(nil)
	case reason == errMinority && q.working() >= q.need: // others have the rest
		v.taken(true)
		return failure.Public(&failure.LockedError{Name: v.l.name})
	case known+own < q.need:
		v.taken(false)
		return failure.Named(v.l.name, v.trouble)
	case len(votes) > 0:
		return failure.Public(v.holder)
	case own > 0: // or it gives way to others
		v.taken(true)
		return failure.Public(&failure.LockedError{Name: v.l.name})
	}
	return failure.Named(v.l.name, cmp.Or(reason, errTaken))
}

package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// settleTime is for how long, at least, a vote that is decided waits for the others, which mostly answer at
// the same time. With all of an odd number of parts the token is safe, and what comes later has to be
// confirmed.
const settleTime = 2 * time.Millisecond

// round asks all servers at once, by TryLock or by Lock. It belongs to the goroutine of its call.
type round struct {
	*vote
	m       *majority // what it makes
	answers <-chan answer[*engine.Entry]
	errs    []error // by server
	granted int
	left    int // servers that have not answered
}

// round returns when a majority has granted, or cannot any more. In the first case the rest becomes part of
// the hold, else it is given back.
func (v *vote) round(try bool) (*entry, error) {
	q, n := v.q, len(v.q.servers)
	while, stop := context.WithCancel(v.bounds.Until)
	seek, end := context.WithCancel(v.values)
	m := &majority{l: v.l, q: q, d: v.d, seek: seek, note: v.cfg.Note, parts: make([]*engine.Entry, n)}
	m.stop = func() { stop(); end() }
	r := &round{vote: v, m: m, errs: make([]error, n), left: n}
	r.answers = ask(q, q.all, func(i int) (*engine.Entry, error) {
		return m.acquirePart(v.values, while, i, v.cfg, try)
	})
	start, decided, explaining := time.Now(), false, false
	v.roundAt = start
	patience := time.NewTimer(q.timeout)
	defer patience.Stop()
	if !try {
		patience.Stop() // until a minority is granted, which keeps no other out for long
	}
	for {
		select {
		case a := <-r.answers:
			r.take(a)
			if r.m.parts[a.i] != nil && r.granted == 1 && !try {
				start = time.Now() // now the wait for the others begins
				patience.Reset(q.timeout)
			}
		case <-patience.C:
			if r.granted < q.need && !try {
				return r.failed(errMinority)
			}
			return r.decide()
		case <-v.bounds.Until.Done():
			return r.failed(nil)
		}
		switch {
		case r.granted < q.need && r.granted+r.left >= q.need: // too early to say
		case r.restFails():
			return r.decide()
		case r.granted < q.need && !r.explained():
			if !explaining && !try {
				patience.Reset(q.timeout) // for a try it counts from the beginning
			}
			explaining = true
		case !decided:
			decided = true
			patience.Reset(min(q.timeout, max(settleTime, time.Since(start))))
		}
	}
}

// take notes an answer.
func (r *round) take(a answer[*engine.Entry]) {
	r.left--
	if r.errs[a.i] = r.judge(a); r.errs[a.i] != nil {
		r.giveBack(a.value)
		return
	}
	r.m.parts[a.i] = a.value
	r.granted++
}

// restFails: those that have not answered, if there are any, are known not to.
func (r *round) restFails() bool {
	for i, s := range r.q.servers {
		if r.m.parts[i] == nil && r.errs[i] == nil && s.trouble() == nil {
			return false
		}
	}
	return true
}

// explained reports whether the answers tell why there will be no majority:
//   - others have the lock on so many servers that no majority is left;
//   - or a majority has answered;
//   - or so many servers fail that no majority can answer.
//
// While explained is false, the caller waits for more replies. If it stopped now, the error would only name
// servers that are slow to reply.
func (r *round) explained() bool {
	refused, failing := r.refused()
	spare := len(r.q.servers) - r.q.need
	return refused > spare || failing > spare || r.granted+refused >= r.q.need
}

// refused returns on how many servers others have the lock, and how many servers fail.
func (r *round) refused() (refused, failing int) {
	for _, err := range r.errs {
		switch {
		case err == nil:
		case errors.As(err, new(*failure.LockedError)):
			refused++
		default:
			failing++
		}
	}
	return refused, failing
}

// decide makes a hold of a majority, once its token is safe.
func (r *round) decide() (*entry, error) {
	m := r.m
	if r.granted < r.q.need {
		return r.failed(nil)
	}
	// The hold's is the smallest number that the tokens of a majority do not exceed. Each hold before had a
	// majority, which shares a server with this one, and that server grants only tokens above that hold's.
	var tokens []int64
	for _, p := range m.parts {
		if p != nil {
			tokens = append(tokens, p.Token())
		}
	}
	slices.Sort(tokens)
	token := tokens[r.q.need-1]
	if !r.raise(token) {
		return r.failed(errToken)
	}
	e := m.become(r.vote, token)
	if e == nil {
		return r.failed(engine.ErrTooLate)
	}
	for i, err := range r.errs {
		if err != nil {
			m.reacquirePart(i, r.q.timeout, "")
		} else {
			m.checkPart(i) // it may be by now
		}
	}
	r.rest()
	return e, nil
}

// raise has the servers of a majority grant no token up to this one any more. If some of them could, it asks
// all whose token is lower, since a server may forget, and waits until enough have answered.
func (r *round) raise(token int64) bool {
	parts := slices.Clone(r.m.parts) // one may be asked yet when it is lost
	var low []int                    // servers whose later grants could have a token that is not higher
	for i, p := range parts {
		if p != nil && p.Token() < token {
			low = append(low, i)
		}
	}
	missing := r.q.need - (r.granted - len(low))
	if missing > 0 {
		raised := ask(r.q, low, func(i int) (none struct{}, _ error) {
			return none, raise(r.values, parts[i], token)
		})
		late, cancel := context.WithTimeout(r.bounds.Until, r.q.timeout)
		defer cancel()
		enough := func(t tally, _ answer[struct{}]) bool { return t.yes == missing }
		missing -= count(late, r.q, raised, enough).yes
	}
	for _, i := range low {
		parts[i].Reserve(token)
	}
	return missing <= 0
}

// raise makes the server of a part grant no later holder this token or one below, and waits for the reply.
// After an error, the server may have stored the token or not, and the part stays held.
func raise(ctx context.Context, part *engine.Entry, token int64) error {
	part.Reserve(token)
	return part.Extend(ctx, 0)
}

// rest has what comes later become part of the hold. It is given back if there is none.
func (r *round) rest() {
	m := r.m
	if r.left == 0 {
		return
	}
	r.q.home.Go(func() {
		for ; r.left > 0; r.left-- {
			a := <-r.answers
			if r.judge(a) != nil || m.seek.Err() != nil {
				r.giveBack(a.value)
				m.reacquirePart(a.i, r.q.timeout, "")
			} else if !m.addPart(a.i, a.value) {
				m.reacquirePart(a.i, 0, "")
			}
		}
	})
}

// failed gives back what was granted, also what comes later, and says why there is no majority: for a reason,
// or by the answers.
func (r *round) failed(reason error) (*entry, error) {
	r.m.stop()
	r.giveBack(r.m.parts...)
	// Nothing should be granted after the call has returned. And the servers that have not answered know the
	// holder, who may be this quorum's own: then two sessions lead to one server.
	if r.bounds.Over() || reason == errMinority {
		late := time.After(call.LeavingTime)
		for r.left > 0 && late != nil {
			select {
			case a := <-r.answers:
				r.take(a)
				r.giveBack(r.m.parts[a.i])
			case <-late:
				late = nil
			}
		}
	}
	err := r.why(reason)
	r.rest()
	return nil, err
}

// giveBack unlocks some parts, and does not wait for that.
func (v *vote) giveBack(parts ...*engine.Entry) {
	for _, p := range parts {
		if p != nil {
			tell := p.Leave()
			v.q.home.Go(func() { _ = tell(context.Background()) })
		}
	}
}

// judge is why an answer is no grant; nil if it is one. A holder is named as all servers name it.
func (v *vote) judge(a answer[*engine.Entry]) error {
	q, s := v.q, v.q.servers[a.i]
	var locked *rlock.LockedError
	switch {
	case a.err == nil:
		return q.credible(s, v.l.name, a.value.Token())
	case errors.As(a.err, &locked) && holderOf(locked.Holder) == q.id &&
		!strings.HasPrefix(locked.Holder, s.session.ID()): // it is another part of this quorum
		err := fmt.Errorf("%w, and a majority needs %d distinct servers", errTwice, q.need)
		q.warn(s, noVote, v.l.name, err)
		return s.named(err)
	case locked != nil && locked.Holder != "":
		e := failure.LockedError(*locked)
		e.Holder = holderOf(e.Holder) + stayed(e.Holder)
		return &e
	case locked != nil, // by this process, which has not given it back in time
		errors.Is(a.err, failure.ErrNoAnswer), // this round ended first
		errors.Is(a.err, context.Canceled):
		return s.late()
	case errors.As(a.err, new(*wire.ValueError)):
		q.warn(s, noVote, v.l.name, a.err)
	}
	return s.named(a.err)
}

// why is the error of a round without a majority: held by the one that most servers name, or that too few
// answered.
func (r *round) why(reason error) error {
	v, q := r.vote, r.q
	known, refused, final := r.granted, 0, 0
	var failing []error
	late := true
	votes, most := map[string]int{}, 0
	for i, s := range q.servers {
		err := r.errs[i]
		if err == nil && r.m.parts[i] == nil {
			err = s.late()
		}
		var holder *failure.LockedError
		switch {
		case err == nil:
		case errors.As(err, &holder):
			known++
			refused++
			if votes[holder.Holder]++; votes[holder.Holder] > most {
				v.holder, most = holder, votes[holder.Holder]
			}
		case errors.Is(err, failure.ErrClosed):
			return failure.Named(v.l.name, failure.ErrClosed)
		case errors.Is(err, errLate):
			failing = append(failing, err)
		default:
			failing, late = append(failing, err), false
			if isFinal(err) {
				final++
			}
		}
	}
	if most > 0 {
		v.taken(true)
		now := time.Now()
		v.d.seen.Store(&failure.Sighting{Holder: v.holder.Holder, About: v.holder.About,
			At: now, Until: now.Add(v.holder.Remaining)})
	}
	spare := len(q.servers) - q.need
	v.hopeless = final > spare
	// Others have the lock on so many servers that those without an answer do not matter. But a Lock would
	// wait in vain for a majority that servers refuse for good.
	taken := known >= q.need || refused > spare && !(v.hopeless && !v.try)
	over := v.bounds.Over()
	if taken {
		v.trouble = nil
	} else if len(failing) > 0 && (!over || v.trouble == nil || !late) {
		// Else an earlier round has said more.
		v.trouble = q.noMajority(known, failing)
	}
	switch {
	case over:
		return v.whyOver()
	case reason == errMinority && q.works() && !v.hopeless: // others have the rest
		v.taken(true)
		return failure.Public(v.holder)
	case !taken:
		v.taken(false)
		return failure.Named(v.l.name, v.trouble)
	case most > 0:
		return failure.Public(v.holder)
	}
	return failure.Named(v.l.name, cmp.Or(reason, errTaken))
}

package broadcast

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// asking is the request of the goroutine inside the root gate.
type asking mutex.Acquisition

func (r *asking) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	a := (*mutex.Acquisition)(r)
	return a.Lock.Store().Ask(a, most, abandoned)
}

// RollBack releases what no goroutine waits for any more, and then leaves the root gate.
func (r *asking) RollBack(o wire.Outcome) {
	a := (*mutex.Acquisition)(r)
	answer, _ := protocol.ParseAnswer(o.Reply)
	a.RollBack(answer.Status == protocol.Granted || a.Grant.Late != 0)
}

// step is what follows a request.
type step uint8

const (
	again step = iota // ask again
	left              // the root gate has been left, or is another's: a hold's, or a goroutine's that rolls back
	leave             // leave it
)

// trouble is what stood in the way since Redis last answered.
type trouble struct {
	outage  time.Time // since when it does not
	tries   int       // in that time
	expired int       // requests in a row that came too late, or whose grants did
}

// compete asks Redis until the lock is granted or the wait ends. The root gate is entered, and is left then, or left to
// the hold, or to the goroutine that rolls back. Neither a hold nor an error: look again.
func (c *crowd) compete(a *mutex.Acquisition) (*mutex.Entry, error) {
	a.NewAttempt()
	var past trouble
	for {
		e, next, err := c.ask(a, &past)
		switch next {
		case again:
			continue
		case leave:
			if a.Grant.Late != 0 {
				a.ReleaseUntilDone()
			}
			c.Pass()
		}
		return e, err
	}
}

// ask asks once, and waits until it makes sense to ask again.
func (c *crowd) ask(a *mutex.Acquisition, past *trouble) (*mutex.Entry, step, error) {
	if err := c.letOthersFirst(a); err != nil {
		return nil, leave, err
	}
	o, err := a.Exchange((*asking)(a))
	if err != nil {
		return nil, left, err
	}
	r, err := protocol.Read(o)
	switch {
	case o.Err != nil:
		return c.unanswered(a, past, o)
	case r.Status == protocol.Granted:
		e, begun, err := a.Take(o.Sent, r.Token)
		switch {
		case begun:
			return e, left, err
		case err == mutex.ErrTooLate && past.expired < protocol.MaxExpired:
			past.expired++
			a.NewAttempt()
			return nil, again, nil
		}
		c.Pass()
		return nil, left, c.Fail(err)
	case r.Status == protocol.Held:
		*past = trouble{}
		return c.refused(a, r)
	case r.Status == protocol.Expired:
		if past.expired++; past.expired > protocol.MaxExpired {
			return nil, leave, c.Fail(protocol.TooLate(a.Lease()))
		}
		return nil, again, nil
	case r.Status == protocol.Stale && past.expired < protocol.MaxExpired: // granted, and forced before the answer came
		past.expired++
		a.NewAttempt()
		return nil, again, nil
	}
	if a.Grant.Late == 0 && err != nil { // whatever it says, it may have been granted
		a.ReleaseUntilDone()
	}
	return nil, leave, c.Keys.Failed(wire.Unexpected(o.Reply))
}

// unanswered sleeps until the request is sent again.
func (c *crowd) unanswered(a *mutex.Acquisition, past *trouble, o wire.Outcome) (*mutex.Entry, step, error) {
	if a.Over() {
		return nil, leave, a.WhyOver(false)
	}
	if past.outage.IsZero() {
		past.outage = o.Sent
	}
	c.Mu.Lock()
	endures := a.Endures(past.outage, o.Err)
	c.Mu.Unlock()
	switch {
	case a.Try || !wire.Judge(o.Err).Transient:
		return nil, leave, c.Keys.Failed(o.Err)
	case !endures:
		return nil, leave, c.Keys.Failed(failure.Outage(past.outage, o.Err))
	}
	past.tries++
	if _, err := c.sleep(a, wire.Backoff(past.tries, 20*time.Millisecond, time.Second)); err != nil {
		return nil, leave, err
	}
	return nil, again, nil
}

// refused rests until the lock may be free.
func (c *crowd) refused(a *mutex.Acquisition, r protocol.Answer) (*mutex.Entry, step, error) {
	a.Advance(mutex.Refused)
	c.Mu.Lock()
	c.Saw(r)
	c.Mu.Unlock()
	if a.Try {
		return nil, leave, failure.Public(r.Locked(c.Keys.Name))
	}
	store := c.Store()
	if c.news != nil && c.sharded != r.Sharded { // another server has the lock by now, or the user other rights
		c.news.Close()
		c.news = nil
	}
	if c.news == nil {
		c.news, c.sharded = store.Listen(c.Keys.Channel.(string), r.Sharded), r.Sharded
	}
	a.Announce()
	rest := min(r.Left, protocol.MaxRest)
	if rest < 0 { // no expiry: not a lock of ours, look again now and then
		rest = min(c.S().Lease, protocol.MaxRest)
	}
	if _, err := c.sleep(a, rest+time.Millisecond); err != nil { // news of any release ends it
		return nil, leave, err
	}
	return nil, again, nil
}

package mutex

import (
	"context"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// ReleaseRequest is the request that ends a grant of this lock.
func (l *Lock) ReleaseRequest(g protocol.Grant) protocol.Release {
	r := protocol.Release{Script: l.Kind.Release, Keys: l.Keys, Grant: g,
		Keep: l.S().Args.Keep}
	return r
}

// ReleaseGrant ends a grant. A second release of the same grant changes nothing, so it may be sent as often
// as it takes. It blocks for the answer, and is sent most times at most.
func (l *Lock) ReleaseGrant(ctx context.Context, g protocol.Grant, most int) wire.Outcome {
	r := l.ReleaseRequest(g)
	return l.release(ctx, &r, most)
}

// release also works while a slot of a Cluster moves (protocol.Migrating).
func (l *Lock) release(ctx context.Context, r *protocol.Release, most int) wire.Outcome {
	return l.S().Link.Call(ctx, r.Script, (*protocol.Migrating)(r), most, nil)
}

// ReleaseUntilDone releases, in the background, what a failed request left behind. It tries until that is
// done or the lease has ended it, and at least once, as another client may have taken the lease's expiry
// away. tried, unless nil, is closed after the first try. The caller must be counted in the session's work.
func (l *Lock) ReleaseUntilDone(g protocol.Grant, until time.Time, tried chan<- struct{}) {
	l.S().Go(func() {
		for try := 0; try == 0 || time.Now().Before(until); try++ {
			o := l.ReleaseGrant(l.S().Ctx, g, 1)
			if tried != nil {
				close(tried)
				tried = nil
			}
			if o.Err == nil || !wire.Judge(o.Err).Again(l.S().Closing()) || !wire.Pause(l.S().Ctx, wire.Backoff(try, 50*time.Millisecond, 2*time.Second)) {
				return
			}
		}
	})
}

// RollBack ends an abandoned attempt, which was or may have been granted or not, and leaves the root gate.
func (a *Acquisition) RollBack(granted bool) {
	l := a.Lock
	defer l.Pass()
	if !granted {
		return
	}
	if o := l.ReleaseGrant(l.S().Ctx, a.Grant, 1); o.Err != nil && wire.Judge(o.Err).Again(l.S().Closing()) {
		a.ReleaseUntilDone()
	}
}

// ReleaseUntilDone releases, in the background, what the attempt's requests may have been granted of this
// lock.
func (a *Acquisition) ReleaseUntilDone() {
	a.Lock.ReleaseUntilDone(a.Grant, time.Now().Add(a.Lease()), nil)
}

// final is the grant with the last token that was used of its block. Only once the tenure has ended: no more
// may be used.
func (t *Tenure) final() protocol.Grant {
	g := t.Grant
	g.Used = g.Token
	if g.Token != t.Token { // passed on, or named by another token than was accepted
		g.Used = t.Token
	}
	return g
}

// unnamed is the grant without its token: whatever the attempt was granted, also by a late copy of its
// request.
func (t *Tenure) unnamed() protocol.Grant {
	return t.Grant.Unnamed()
}

// ReleaseRequest is the request that ends a tenure that has ended here.
func (t *Tenure) ReleaseRequest() protocol.Release { return t.Lock.ReleaseRequest(t.final()) }

// Released is the end of a request with outcome o.
func (v Leaving) Released(ctx context.Context, o wire.Outcome) error {
	defer v.t.Lock.S().End()
	if !v.last {
		return o.Err
	}
	return v.t.released(ctx, v.was, o)
}

// released is the end of every release of a tenure: what its caller is told, and which waiter may have the
// lock next. A release without an answer goes on in the background, and does not keep others from asking:
// Redis decides.
func (t *Tenure) released(ctx context.Context, was term, o wire.Outcome) error {
	l := t.Lock
	var err error
	switch {
	case o.Err != nil:
		err = l.Keys.Failed(o.Err)
		l.ReleaseUntilDone(t.final(), t.Deadline(), nil)
	case strings.HasPrefix(o.Reply, "R"):
	case o.Unanswered != nil:
		// An unanswered copy may have released it, and another holder may have lost it since.
		err = l.Keys.Failed(o.Unanswered)
	default:
		err = l.Fail(failure.ErrLost)
	}
	l.remember(t, o)
	l.Pass()
	l.Mu.Lock()
	l.unlock.End() // now that another may enter the root gate
	l.Mu.Unlock()
	l.Drop()
	was.ended(ctx, l, err)
	return err
}

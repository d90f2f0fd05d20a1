package election

import (
	"context"
	"iter"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// Observe yields the present leader first, or the zero Leader if there is none, and then each change: another
// leader, another value, or none. Tokens never go backwards, nor do the values of one leader. A state that
// was overtaken before Redis was asked may be skipped, as that of a leader that has resigned at once.
//
// It ends when the loop is left, or with an error, which it yields last, with the zero Leader. The error
// matches ctx.Err() if ctx ended, or [rlock.ErrClosed] if the session was closed, or is one of go-redis that
// waiting does not mend, as that of a missing right. An outage is no error. While it lasts, what was yielded
// last can be outdated, and Observe asks again as soon as it is over.
//
// Messages wake it. It also asks when the leader's lease would be over if it was not renewed since, so it
// notices a leader that has died or was forced. If there is no leader it asks once in the session's lease,
// because nodes of a Cluster can lose a message. It uses the session's subscription connection. A slow loop
// delays no other.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.check(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		s := e.session
		bounds := call.Bounds{Until: ctx, Closing: s.Closing()}
		news := s.Hub.Subscribe(e.channel())
		defer news.Close()
		own := s.Hub.Subscribe(s.Channel()) // which says where the connection leads
		defer own.Close()
		var seen history
		for failed := 0; !bounds.Over(); news.Take() { // that something has changed is all messages say
			v, err := e.look(ctx, s.SoleChannel())
			if v.deaf {
				own.Unheard(v.sent)
			}
			rest := s.Lease
			switch {
			case bounds.Over():
				continue
			case err != nil && !wire.Judge(err).Unsettled():
				yield(Leader{}, err)
				return
			case err != nil:
				failed++
				rest = wire.Backoff(failed, 50*time.Millisecond, 2*time.Second)
			default:
				failed = 0
				if seen.advance(v) && !yield(seen.shown, nil) {
					return
				}
				if !v.None() && v.until >= 0 {
					rest = time.Until(v.sent.Add(v.until)) + 2*time.Millisecond // Redis counts milliseconds
				}
			}
			bounds.Sleep(rest, news.C())
		}
		yield(Leader{}, e.fail(failure.Ended(ctx)))
	}
}

// history is what one observer was shown.
type history struct {
	begun bool
	shown Leader // last

	token, number int64 // the highest token that was shown, and the last value's number of that leader
}

// advance takes what a look has found and reports whether there is something new to show. An older leader,
// which Redis has again after it lost data, counts as none.
func (h *history) advance(v view) bool {
	if v.Token < h.token {
		v = view{}
	}
	if v.Token != 0 && v.Token == h.token && v.number < h.number {
		return false // Redis lost the newer value, and gets it again with the next renewal
	}
	if !v.None() {
		h.token, h.number = v.Token, v.number
	}
	if h.begun && v.Leader == h.shown {
		return false
	}
	h.begun, h.shown = true, v.Leader
	return true
}

package mutex

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// There is no queue: a release is published, and the goroutine inside the root
// gate of each session that waits asks again. No wake-up is lost: a confirmed subscription counts as news.

// ear is how a session waits for such a lock. It belongs to the goroutine inside the root gate, and is handed
// to the next, so that a hot lock stays subscribed.
type ear struct {
	news    *wakeup.Listener // nil before the first refusal
	sharded bool             // of news
	rest    time.Time        // until then it is the turn of others
}

// restTime is the head start that a session gives, after its turn, to those that were told that the lock is
// free. It is longer than their requests take in one data center. Without it a session that comes back at
// once would win each time: its request leaves before the message of its release has reached the others.
const restTime = time.Millisecond

// few is the largest number of clients that may all ask at once after a release, this session included. With
// no more than that, a session whose turn was a single hold does not let others go first: beside one with
// long turns its share would be small.
const few = 2

// leaveToOthers learns from the reply to a release how many got its message. The root gate is entered.
func (l *Lock) leaveToOthers(t *Tenure, o wire.Outcome) {
	_, heard, _ := strings.Cut(o.Reply, " ")
	told, _ := strconv.Atoi(heard)
	others := told
	if l.ear.news != nil {
		others-- // the session's own
	}
	l.Mu.Lock()
	l.wanted(others > 0)
	l.Mu.Unlock()
	if others > 0 && (t.PassedOn() || t.contested && told > few) {
		l.ear.rest = time.Now().Add(restTime)
	}
}

// contend asks until the lock is granted or the wait is over. The root gate is entered.
func (l *Lock) contend(a *Acquisition) (*Entry, error) {
	rest, news := time.Until(l.ear.rest), (<-chan struct{})(nil)
	for failed := 0; ; failed++ {
		if rest > 0 && !a.Try {
			if _, ended := a.Sleep(rest, news); ended {
				err := a.WhyOver(false)
				l.Pass()
				return nil, err
			}
		}
		if l.ear.news != nil {
			l.ear.news.Take() // from here on, news is of a release after the request
		}
		e, r, refused, err := l.askAtOnce(a)
		if !refused {
			return e, err
		}
		rest, news = wire.Backoff(failed, 20*time.Millisecond, time.Second), nil // an outage
		if r.Status == protocol.Queued {
			failed = 0
			l.listen(r.Sharded)
			a.Announce()
			news = l.ear.news.Ready
			rest = min(r.Left, protocol.MaxRest) + time.Millisecond
			if r.Left < 0 { // no lock of ours: look now and then
				rest = min(l.S().Lease, protocol.MaxRest)
			}
		}
	}
}

// listen subscribes to what a release publishes, as the last refusal said. It does not wait for the
// confirmation.
func (l *Lock) listen(sharded bool) {
	if l.ear.news != nil && l.ear.sharded != sharded {
		l.deafen() // another server has the lock by now, or the user other rights
	}
	if l.ear.news == nil {
		hub := l.S().Hub
		if sharded {
			hub = l.S().ShardedHub
		}
		l.ear.news, l.ear.sharded = wakeup.Listen(l.Keys.Channel.(string), hub), sharded
	}
}

// deafen ends the subscription.
func (l *Lock) deafen() {
	if l.ear.news != nil {
		l.ear.news.Close()
		l.ear.news = nil
	}
}

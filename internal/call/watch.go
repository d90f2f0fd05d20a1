package call

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// A Watch follows a value in Redis for one goroutine. The goroutine reads the value, and then waits until a
// message announces a change or it is time to read again. No change is missed in between, because the
// goroutine also reads after each confirmation of the subscription.
type Watch struct {
	Bounds
	Next    time.Time // time of the next read, unless a message comes first; zero means at once
	Failing time.Time // start of the first read that failed since the last success
	Last    error     // error of the last read; nil if it succeeded

	s         *session.Session
	channel   string
	news, own *pubsub.Subscription // subscriptions to channel and the session's channel; nil at first
	readAt    time.Time            // start of the last read
	failures  int                  // number of reads that have failed since the last success
}

// NewWatch returns a Watch with the bounds ctx and s. channel is the channel on which changes are published.
func NewWatch(ctx context.Context, s *session.Session, channel string) *Watch {
	return &Watch{Bounds: Bounds{ctx, s.Closing()}, s: s, channel: channel}
}

// Close ends the subscriptions.
func (w *Watch) Close() {
	if w.news != nil {
		w.news.Close()
		w.own.Close()
	}
}

// Wait blocks until a message arrives, it is time to read, or a bound has ended. It returns the messages.
func (w *Watch) Wait() (messages []string) {
	if !w.Due() {
		if w.news == nil {
			w.news, w.own = w.s.Hub.Subscribe(w.channel), w.s.Hub.Subscribe(w.s.Channel())
		}
		w.Sleep(time.Until(w.Next), w.news.C())
		var gap bool
		if messages, gap = w.news.Take(); gap {
			w.Next = time.Time{}
		}
	}
	w.readAt = time.Now()
	return messages
}

// Due reports whether it is time to read.
func (w *Watch) Due() bool { return !time.Now().Before(w.Next) }

// Answered notes that a read succeeded, and plans the next one after rest. If unsubscribed is true, the
// server has no subscriber to the session's channel. If the subscription was confirmed before the read, its
// connection leads to another server, and the hub replaces the connection.
func (w *Watch) Answered(unsubscribed bool, rest time.Duration) {
	if unsubscribed && w.own != nil {
		w.own.Unheard(w.readAt)
	}
	w.failures, w.Last, w.Next = 0, nil, time.Now().Add(rest)
}

// EndOfWatch returns the error of a watch that a bound has ended. err is the error of a read that returned
// after the end of the bound; nil means that there was no such error. name prefixes an error with the name of
// the lock.
func (w *Watch) EndOfWatch(err error, name func(error) error) error {
	if err != nil && errors.Is(err, cmp.Or(w.Until.Err(), failure.ErrClosed)) { // the bound ended the read
		if w.Last == nil {
			return err
		}
		err = nil // the earlier read failed, too, and its error is more useful
	}
	return failure.Troubled(name(failure.Ended(w.Until)), cmp.Or(err, w.Last))
}

// Failed notes that a read failed, and plans the next one soon. It reports whether another read makes sense.
func (w *Watch) Failed(err error) bool {
	if w.failures++; w.failures == 1 {
		w.Failing = w.readAt
	}
	w.Last, w.Next = err, time.Now().Add(wire.Backoff(w.failures, 16*time.Millisecond, time.Second))
	return wire.Judge(err).Transient
}

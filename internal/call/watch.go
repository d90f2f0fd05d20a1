package call

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// Watch follows something in Redis, for one goroutine. That asks, and waits until a message tells it of a
// change, or until it is time to ask again. No change is missed in between: a subscription that is confirmed,
// for the first time or again, is a reason to ask.
type Watch struct {
	Bounds
	Next    time.Time // when to ask, if nothing is heard; at first at once
	Failing time.Time // before the first of the questions that have failed since one was answered
	Last    error     // of the last question

	s         *session.Session
	channel   string
	news, own *pubsub.Subscription // own: to the session's channel. Both are nil until it has to wait
	asked     time.Time            // before the last question
	failures  int
}

// NewWatch is one that ends with ctx and s. Changes are published on the channel.
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

// Wait blocks until it hears something, or has to ask, or a bound has ended. It returns the messages.
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
	w.asked = time.Now()
	return messages
}

// Due reports whether it is time to ask.
func (w *Watch) Due() bool { return !time.Now().Before(w.Next) }

// Answered has it ask again after rest. deaf says that the server knows of no client that listens to
// the session's channel. So the connection may lead to another server.
func (w *Watch) Answered(deaf bool, rest time.Duration) {
	if deaf && w.own != nil {
		w.own.Unheard(w.asked)
	}
	w.failures, w.Last, w.Next = 0, nil, time.Now().Add(rest)
}

// Failed has it ask again soon, and reports whether that makes sense.
func (w *Watch) Failed(err error) bool {
	if w.failures++; w.failures == 1 {
		w.Failing = w.asked
	}
	w.Last, w.Next = err, time.Now().Add(wire.Backoff(w.failures, 16*time.Millisecond, time.Second))
	return wire.Judge(err).Transient
}

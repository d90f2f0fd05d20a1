package latch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// sighting is what look.lua says of a run.
type sighting struct {
	letter byte
	count  int
	left   time.Duration // until the next lease ends; negative: none has one
	deaf   bool          // the server knows of nobody that listens
	run    string
	party  string // whose lease ends next
	sent   time.Time
}

// look asks how a run stands; "": the one that is under way. channel is the session's, or "".
func (l *Latch) look(ctx context.Context, run string, channel any) (sighting, error) {
	a, err := l.ask(ctx, lookScript, run, channel)
	st := sighting{letter: a.letter, sent: a.sent}
	if err != nil || st.letter != 'R' {
		return st, err
	}
	words := strings.SplitN(a.rest, " ", 5)
	if len(words) < 5 {
		return sighting{}, l.unexpected(a)
	}
	st.deaf, st.run, st.party = words[2] == "D", words[3], words[4]
	left, ok := protocol.Remaining(words[1])
	if st.count, err = strconv.Atoi(words[0]); err != nil || !ok {
		return sighting{}, l.unexpected(a)
	}
	if st.left = left; left == 0 {
		st.letter = 'P'
	}
	return st, nil
}

// ending is the error of a run that is over, or of which a party has died, by the letter that says so.
func (l *Latch) ending(letter byte, party string) error {
	switch letter {
	case 'D':
		return l.fail(ErrDeleted)
	case 'G':
		return l.fail(ErrGone)
	case 'P':
		return l.died(party)
	}
	return nil
}

// Wait blocks until the count of the run that is under way is 0, and returns nil then. It returns nil at once
// where none is under way. It returns a *[PartyDiedError] if the lease of a party has ended or ends,
// [ErrDeleted], or [ErrGone] if nothing is known of the run any more. An outage does not end it while it
// sleeps. If it has to look and gets no answer, it tries again until ctx has ended. If ctx has no deadline,
// it does so for as long as the session's lease (30 s by default), and returns the error then. After an error
// nothing has changed: Wait can be called again.
func (l *Latch) Wait(ctx context.Context) error { return l.wait(ctx, "") }

// mostRest is how long a waiter sleeps at most: a third of what a run is kept for at least (ENDED in
// latch.lua).
const mostRest = 40 * time.Second

// waiter is one wait for one run. It belongs to its goroutine.
type waiter struct {
	l        *Latch
	b        call.Bounds
	run      string    // "": the one that is under way
	seen     sighting  // by the last look
	last     error     // of the last look
	failures int       // looks that have failed since one did not
	failing  time.Time // when the first of these began
	next     time.Time // when to look, if nothing is heard
}

// wait waits for the end of a run; "": the one that is under way.
func (l *Latch) wait(ctx context.Context, run string) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	s := l.s
	if !s.Begin() {
		return l.fail(failure.ErrClosed)
	}
	defer s.End()
	w := &waiter{l: l, b: call.Bounds{Until: ctx, Closing: s.Closing()}, run: run}
	w.rest()
	for w.run == "" { // a latch that is over needs no subscription
		if over, err := w.look(""); over {
			return err
		}
		if w.run == "" {
			if _, ended := w.b.Sleep(time.Until(w.next), nil); ended {
				return w.ended()
			}
		}
	}
	news := s.Hub.Subscribe(l.keys.LockKey())
	defer news.Close()
	own := s.Hub.Subscribe(s.Channel()) // which says where the connection leads
	defer own.Close()
	for {
		if _, ended := w.b.Sleep(time.Until(w.next), news.C()); ended {
			return w.ended()
		}
		messages, gap := news.Take()
		for _, m := range messages {
			if over, err := w.hear(m); over {
				return err
			}
		}
		if !gap && time.Now().Before(w.next) {
			continue
		}
		if over, err := w.look(s.SoleChannel()); over {
			return err
		}
		if w.seen.deaf {
			own.Unheard(w.seen.sent)
		}
	}
}

// ended is why the wait was ended by its bounds.
func (w *waiter) ended() error {
	return failure.Troubled(w.l.fail(failure.Ended(w.b.Until)), w.last)
}

// hear takes a message: it may end the wait, or bring the next look forward.
func (w *waiter) hear(message string) (over bool, err error) {
	kind, rest, _ := strings.Cut(message, " ")
	run, left, _ := strings.Cut(rest, " ")
	if run != w.run {
		return false, nil
	}
	switch kind {
	case "Z", "D":
		return true, w.l.ending(kind[0], "")
	case "L": // a lease that ends then
		if d, ok := protocol.Remaining(left); ok && d >= 0 {
			w.sooner(d)
		}
	}
	return false, nil
}

// sooner has the waiter look when a lease has ended that lasts for d, if it would look later.
func (w *waiter) sooner(d time.Duration) {
	if at := time.Now().Add(d + time.Millisecond); at.Before(w.next) {
		w.next = at
	}
}

// rest has the waiter look once in the session's lease at least. A message can be lost between two nodes, and
// a connection can lead to a server on which nothing is published.
func (w *waiter) rest() { w.next = time.Now().Add(min(w.l.s.Lease, mostRest)) }

// look looks how the run stands, and sets when to look again. In an outage that is soon, until the session's
// lease has passed.
func (w *waiter) look(channel any) (over bool, err error) {
	asked := time.Now()
	w.seen, w.last = w.l.look(w.b.Until, w.run, channel)
	if w.last != nil {
		if w.failures++; w.failures == 1 {
			w.failing = asked
		}
		w.next = time.Now().Add(wire.Backoff(w.failures, 16*time.Millisecond, time.Second))
		goesOn := wire.Judge(w.last).Transient && w.b.Endures(w.failing, w.failing, w.l.s.Lease)
		return w.b.Over() || !goesOn, w.last
	}
	w.failures, w.run = 0, w.seen.run
	w.rest()
	if w.seen.left >= 0 {
		w.sooner(w.seen.left)
	}
	return w.seen.letter != 'R', w.l.ending(w.seen.letter, w.seen.party)
}

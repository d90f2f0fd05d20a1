package latch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/protocol"
)

// A sighting is the state of a run, as latch/look.lua has returned it.
type sighting struct {
	letter       byte // letter of the reply, or 'P' if the lease of a party has ended
	count        int64
	rest         time.Duration // time until the next read of the state; at most until the first lease ends
	unsubscribed bool          // the server has no subscriber to the session's channel
	run          string
	party        string // the party whose lease ends first
}

// look returns the state of the run with this id. If run is "", it returns the state of the current run.
// channel is the session's channel. If channel is "", look does not check whether the channel has a
// subscriber.
func (l *Latch) look(ctx context.Context, run string, channel any) (sighting, error) {
	a, err := l.ask(ctx, lookScript, run, channel)
	st := sighting{letter: a.letter}
	if err != nil || st.letter != 'R' {
		return st, err
	}
	words := strings.SplitN(a.rest, " ", 5)
	if len(words) < 5 {
		return sighting{}, l.unexpected(a)
	}
	st.rest, st.unsubscribed, st.run, st.party = l.rest(), words[2] == "D", words[3], words[4]
	left, ok := protocol.Remaining(words[1])
	if st.count, err = strconv.ParseInt(words[0], 10, 64); err != nil || !ok {
		return sighting{}, l.unexpected(a)
	}
	switch {
	case left == 0:
		st.letter = 'P'
	case left > 0: // some party has a lease
		st.rest = min(st.rest, left+time.Millisecond)
	}
	return st, nil
}

// ending returns the error for the letter of a reply or of a message: ErrDeleted for D, ErrGone for G, and a
// *PartyDiedError with the name of the party for P. It returns nil for any other letter.
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

// Wait blocks until the count of the current run is 0, and then returns nil. If there is no run, it returns
// nil without a wait. It returns a *[PartyDiedError] if the lease of a party has ended before the party has
// counted. It returns [ErrDeleted] if the run is deleted, and [ErrGone] if Redis does not know the run any
// more.
//
// Usually, Wait sleeps until a message arrives. An outage does not end this sleep. From time to time, Wait
// also reads the count. If an outage makes this read fail, Wait tries again until the deadline of ctx. If ctx
// has no deadline, Wait tries for the time of the session's watchdog timeout (15 s by default), and then
// returns the last error. An error that another try cannot mend, such as a missing right, ends Wait at once.
// Wait does not change the count, so it can be called again after an error.
func (l *Latch) Wait(ctx context.Context) error { return l.wait(ctx, "") }

// mostRest is the longest time for which a waiter sleeps between two reads of the state. It is a third of the
// time for which Redis remembers the end of a run (ENDED in latch.lua). A waiter must read the state from
// time to time, because a message can be lost between two nodes of a Cluster. The connection of a
// subscription can also lead to a server on which nothing is published.
const mostRest = 40 * time.Second

// rest returns the time for which a waiter sleeps if no message arrives and no lease ends.
func (l *Latch) rest() time.Duration { return min(l.s.Lease, mostRest) }

// wait waits until the run with this id has ended. If run is "", it waits for the end of the current run.
func (l *Latch) wait(ctx context.Context, run string) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	w := call.NewWatch(ctx, l.s, l.keys.LockKey())
	defer w.Close()
	if run != "" { // the caller has just seen the run, so the first look can wait
		w.Next = time.Now().Add(l.rest())
	}
	for {
		messages := w.Wait()
		if w.Over() {
			return w.EndOfWatch(nil, l.fail)
		}
		for _, m := range messages {
			if letter := onMessage(m, run, w); letter != 0 {
				return l.ending(letter, "")
			}
		}
		if !w.Due() {
			continue
		}
		seen, err := l.look(ctx, run, l.s.SoleChannel())
		switch {
		case err == nil && seen.letter == 'R':
			run = seen.run
			w.Answered(seen.unsubscribed, seen.rest)
		case err == nil:
			return l.ending(seen.letter, seen.party)
		case w.Over():
			return w.EndOfWatch(err, l.fail)
		case !w.Failed(err) || !w.ToleratesOutage(w.Failing, w.Failing, l.s.Lease):
			return err
		}
	}
}

// onMessage handles a message. If the message says that this run has ended, onMessage returns the letter of
// the message, and otherwise 0. If the message is about a lease that ends before w.Next, onMessage moves
// w.Next to the end of that lease.
func onMessage(m, run string, w *call.Watch) byte {
	kind, about, _ := strings.Cut(m, " ")
	of, left, _ := strings.Cut(about, " ")
	switch d, ok := protocol.Remaining(left); {
	case run == "" || of != run:
	case kind == "Z" || kind == "D":
		return kind[0]
	case kind == "L" && ok && d >= 0:
		if at := time.Now().Add(d + time.Millisecond); at.Before(w.Next) {
			w.Next = at
		}
	}
	return 0
}

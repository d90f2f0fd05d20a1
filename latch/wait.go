package latch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
)

// sighting is what look.lua says of a run.
type sighting struct {
	letter byte
	count  int64
	rest   time.Duration // until the next lease ends, or it is time to look again
	deaf   bool          // the server knows of nobody that listens
	run    string
	party  string // whose lease ends next
}

// look asks how a run stands; "": the one that is under way. channel is the session's, or "".
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
	st.rest, st.deaf, st.run, st.party = l.rest(), words[2] == "D", words[3], words[4]
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
// latch.lua). A message can be lost between two nodes, and a connection can lead to a server on which nothing
// is published.
const mostRest = 40 * time.Second

// rest is for how long a waiter sleeps that hears nothing and knows of no lease.
func (l *Latch) rest() time.Duration { return min(l.s.Lease, mostRest) }

// wait waits for the end of a run; "": the one that is under way.
func (l *Latch) wait(ctx context.Context, run string) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	w := call.NewWatch(ctx, l.s, l.keys.LockKey())
	defer w.Close()
	if run != "" { // it was under way just now
		w.Next = time.Now().Add(l.rest())
	}
	for {
		messages := w.Wait()
		if w.Over() {
			return failure.Troubled(l.fail(failure.Ended(ctx)), w.Last)
		}
		for _, m := range messages {
			kind, about, _ := strings.Cut(m, " ")
			of, left, _ := strings.Cut(about, " ")
			switch d, ok := protocol.Remaining(left); {
			case run == "" || of != run:
			case kind == "Z" || kind == "D":
				return l.ending(kind[0], "")
			case kind == "L" && ok && d >= 0: // a lease that ends then
				if at := time.Now().Add(d + time.Millisecond); at.Before(w.Next) {
					w.Next = at
				}
			}
		}
		if !w.Due() {
			continue
		}
		seen, err := l.look(ctx, run, l.s.SoleChannel())
		switch {
		case err == nil && seen.letter == 'R':
			run = seen.run
			w.Answered(seen.deaf, seen.rest)
		case err == nil:
			return l.ending(seen.letter, seen.party)
		case !w.Failed(err) || w.Over() || !w.Endures(w.Failing, w.Failing, l.s.Lease):
			return err
		}
	}
}

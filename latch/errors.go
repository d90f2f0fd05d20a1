package latch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

var (
	// ErrDeleted: the latch was deleted before its count was 0.
	ErrDeleted = errors.New("lockline: latch deleted")

	// ErrGone: Redis knows nothing of the run any more. Its data were lost or have expired, or it ended more
	// than two minutes ago. A Party's context has this cause, too, if its run has ended without it.
	ErrGone = errors.New("lockline: nothing is known of this run of the latch any more")

	// ErrPartyDied: the lease of a party ended before it counted. The error is a *[PartyDiedError].
	ErrPartyDied = errors.New("lockline: a party of the latch died")

	// ErrNoCount: there is no count for a party to join for. No run is under way, or as many parties have
	// joined as the count says.
	ErrNoCount = errors.New("lockline: no count left to join for")

	// ErrPartyExists: another party has joined by this name, and its lease has not ended.
	ErrPartyExists = errors.New("lockline: a party of this name has joined")

	errNil     = errors.New("lockline: a zero Latch; make one with New")
	errUnknown = errors.New("it is not known whether the request took effect: " +
		"its last copy came too late to tell")
)

// PartyDiedError says which party died. It matches [ErrPartyDied].
type PartyDiedError struct {
	Name  string // of the latch
	Party string // of several, the one whose lease ended first
}

func (e *PartyDiedError) Error() string {
	return fmt.Sprintf("lockline: latch %q: the lease of party %q ended before it counted", e.Name, e.Party)
}

// Unwrap makes errors.Is(err, ErrPartyDied) true.
func (e *PartyDiedError) Unwrap() error { return ErrPartyDied }

// fail is an error for the user.
func (l *Latch) fail(err error) error {
	var value *protocol.ValueError
	var reply redis.Error
	switch {
	case errors.As(err, &value):
		err = oddError{value}
	case errors.As(err, &reply) && strings.Contains(err.Error(), "WRONGTYPE"):
		// Before Redis 7 it is not the first word.
		err = fmt.Errorf("%w (the latch's key is %q)", err, l.key)
	default:
		if hint := wire.Hint(err); hint != "" {
			err = fmt.Errorf("%w%s", err, hint)
		}
	}
	return failure.Of("latch", l.keys.Name, err)
}

// oddError is a ValueError with advice about a latch, not about a lock.
type oddError struct{ *protocol.ValueError }

func (e oddError) Error() string {
	return fmt.Sprintf("the key %q has %q in its field %q, %s, which Lockline did not write; "+
		"delete the latch", e.Key, e.Value, e.Field, e.Why)
}

func (e oddError) Unwrap() error { return e.ValueError }

// ended is why a wait was ended by its bounds.
func (l *Latch) ended(b *wakeup.Bounds) error {
	if b.Until.Err() != nil {
		return l.fail(failure.OfContext(b.Until))
	}
	return l.fail(failure.ErrClosed)
}

// begin has the session wait for a call, until done.
func (l *Latch) begin(ctx context.Context) (b *wakeup.Bounds, done func(), err error) {
	switch {
	case l == nil || l.s == nil && l.err == nil:
		return nil, nil, errNil
	case l.err != nil:
		return nil, nil, l.err
	case ctx == nil:
		return nil, nil, l.fail(failure.ErrNilContext)
	case ctx.Err() != nil:
		return nil, nil, l.fail(failure.OfContext(ctx))
	case !l.s.Begin():
		return nil, nil, l.fail(failure.ErrClosed)
	}
	return &wakeup.Bounds{Until: ctx, Closing: l.s.Closing()}, l.s.End, nil
}

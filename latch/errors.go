package latch

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockline/lockline/internal/failure"
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

// fail puts the name before what happened.
func (l *Latch) fail(err error) error { return failure.Of(noun, l.keys.Name, err) }

func (l *Latch) died(party string) error { return &PartyDiedError{Name: l.keys.Name, Party: party} }

// check says what is wrong with a call.
func (l *Latch) check(ctx context.Context) error {
	switch {
	case l == nil || l.s == nil && l.err == nil:
		return errNil
	case l.err == nil && ctx == nil:
		return l.fail(failure.ErrNilContext)
	}
	return l.err
}

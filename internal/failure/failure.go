// Package failure has the errors of locks: what they match, and their text.
//
// Users see them as types of package rlock, whose documentation shows every field. [Public] converts the
// structs of this package to those types; rlock sets it.
//
// Errors of a lock carry its name (Named), and those of a wait that ended carry the holder (OfWait): the
// reader of the error need not ask Redis.
//
// Each text begins with "lockline: " once. What puts words before another error takes the prefix from it.
package failure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What users compare errors with, by errors.Is.
var (
	ErrLocked  = errors.New("lockline: locked by another holder")
	ErrLost    = errors.New("lockline: lock lost")
	ErrNotHeld = errors.New("lockline: lock not held")
	ErrClosed  = errors.New("lockline: session closed")
)

var (
	// ErrUnlocked is matched by the cause of the context of an unlocked hold. The cause names the lock, as
	// UnlockedText does.
	ErrUnlocked = fmt.Errorf("%w: unlocked", ErrNotHeld)
	// ErrUnlockedBefore is the error of a call of a hold that was unlocked.
	ErrUnlockedBefore = fmt.Errorf("%w: it was unlocked before", ErrNotHeld)
	// ErrNilHold is the error of a call of a nil Hold.
	ErrNilHold = fmt.Errorf("%w: the Hold is nil, because the call that should have returned it failed: "+
		"check the error of that call first", ErrNotHeld)
	// ErrNilContext is the error of a call without a context.
	ErrNilContext = errors.New("lockline: the context is nil")
	// ErrNilSession is the error of each use of a lock whose New was given no session.
	ErrNilSession = errors.New("lockline: the session is nil or a zero value; make one with rlock.NewSession")
)

// UnlockedText returns the text of the cause with which Unlock ends the context of a hold, for code that uses
// the context all the same. what is a noun, as Of has it. The lock is named because the error may be that of
// a call for another lock.
func UnlockedText(what, name string) string {
	return fmt.Sprintf("%v: this context belonged to a hold of %s %q that was unlocked; "+
		"go on with the context that this hold was acquired with", ErrNotHeld, cmp.Or(what, "lock"), name)
}

// SelfHint is the hint of the error of a wait for a lock that the waiter's own session holds.
const SelfHint = " (held by this same session: if the holder called this Lock, " +
	"it must pass the context that its own Lock returned)"

// SelfPermitsHint returns the hint of the error of a wait for permits, of which the waiter's own session
// holds n.
func SelfPermitsHint(n int64) string {
	return fmt.Sprintf(" (permits that this same session holds: %d; "+
		"if their holder called this Acquire, it waits for itself)", n)
}

// UpgradeHint is the hint where a reader of the session is in the way of its writer.
const UpgradeHint = " (this same session reads: a reader cannot become the writer, and must unlock first)"

// Public converts errors that are structs to the types that users know, those of package rlock, which sets
// it.
var Public = func(err error) error { return err }

// LockedError is the ErrLocked of TryLock and of a wait that ran out.
type LockedError struct {
	What      string // a noun; "": a lock
	Name      string
	Holder    string
	About     string
	Remaining time.Duration
	Hint      string
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s%s %q: %s%s%s", prefix, cmp.Or(e.What, "lock"), e.Name, e.taken(), e.by(), e.Hint)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// taken says that it is not free, in words before those of by.
func (e *LockedError) taken() string {
	switch {
	case e.What == "":
		return "locked"
	case e.by() == "":
		return "not enough permits are free"
	}
	return "not enough permits are free; some are held"
}

// versions matches a process id and a host in a holder info, and the versions behind these, which would only
// make a message longer.
var versions = regexp.MustCompile(`^(\S*)/\d+(:\S*)?`)

// by returns as much of the holder as is known. One whose owner field ends in "~" has unlocked.
func (e *LockedError) by() (msg string) {
	holder, stays := strings.CutSuffix(e.Holder, "~")
	if holder != "" {
		msg += " by " + holder
	}
	if e.About != "" {
		about, note, _ := strings.Cut(e.About, "\t") // see internal/protocol/info.go
		msg += " (" + versions.ReplaceAllString(strings.TrimSpace(about), "$1")
		if note != "" {
			msg += fmt.Sprintf(", note %q", note)
		}
		msg += ")"
	}
	left := max(e.Remaining.Round(time.Millisecond), time.Millisecond)
	switch {
	case stays && e.Remaining > 0:
		msg += fmt.Sprintf(", unlocked, and stays taken for another %v (HoldAtLeast)", left)
	case e.Remaining > 0:
		msg += fmt.Sprintf("; its lease ends in %v, unless it is renewed or released", left)
	}
	return msg
}

const prefix = "lockline: "

// Bare is an error's text without the prefix.
func Bare(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

// worded is errors in other words.
type worded struct {
	text string
	errs []error
}

func (e *worded) Error() string   { return e.text }
func (e *worded) Unwrap() []error { return e.errs }

// Worded is an error with that text. It matches all that errs match.
func Worded(text string, errs ...error) error { return &worded{text, errs} }

// Within puts words before an error.
func Within(where string, err error) error {
	return Worded(prefix+where+": "+Bare(err), err)
}

// Join is errors.Join with the text in one line. It returns a single error as it is.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	text := errs[0].Error()
	for _, err := range errs[1:] {
		next := err.Error()
		if strings.Contains(text, prefix) {
			next = Bare(err)
		}
		text += "; " + next
	}
	return Worded(text, errs...)
}

// named puts what it is, and its name, before what happened to it. A wait that its context ended has a
// holder, which errors.As finds. It is no ErrLocked: a caller that ends its own wait does other things than
// one that was refused.
type named struct {
	what   string // a noun; "": a lock
	name   string
	err    error
	holder error // nil: none
}

// Named puts a lock's name before what happened to it.
func Named(name string, err error) error { return Of("", name, err) }

// Of is Named with a noun for what it is; "": a lock.
func Of(what, name string, err error) error { return &named{what: what, name: name, err: err} }

func (e *named) Error() string {
	return fmt.Sprintf("%s%s %q: %s", prefix, cmp.Or(e.what, "lock"), e.name, Bare(e.err))
}
func (e *named) Unwrap() error      { return e.err }
func (e *named) As(target any) bool { return e.holder != nil && errors.As(e.holder, target) }

// Unnamed is an error's text without a prefix and without the name of its lock, for an error that has them
// already.
func Unnamed(err error) string {
	for n, ok := err.(*named); ok; n, ok = err.(*named) {
		err = n.err
	}
	return Bare(err)
}

// ErrNoAnswer: a wait ran out, and nothing is known of a holder.
var ErrNoAnswer = fmt.Errorf("no answer from Redis before the wait was over: %w", os.ErrDeadlineExceeded)

// Why a hold was lost, for operators.
var (
	ErrExpired = errors.New("its lease ran out before it was renewed")
	// ErrFixedLeaseOver is ErrExpired of a lease that WithLease has fixed, which is not renewed.
	ErrFixedLeaseOver = errors.New("its fixed lease ran out before Unlock")
	ErrGone           = errors.New("it is not in Redis any more: its lease ran out there, it was forced, " +
		"or data was lost")
)

// Lost returns the error of a hold that was lost for a reason; nil: the reason is not known.
func Lost(reason error) error {
	if reason == nil {
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, reason)
}

// LossReason is that of a lease which the watchdog has given up.
func LossReason(deadlinePassed bool) error {
	if deadlinePassed {
		return ErrExpired
	}
	return ErrGone
}

// ErrForgotten is the cause of the contexts that descend from one that no goroutine could reach any more.
var ErrForgotten = fmt.Errorf("%w: neither its Hold nor its context could be reached any more, "+
	"so it was released", ErrNotHeld)

// ErrNoToken: the token was taken out of the lock's hash.
var ErrNoToken = errors.New("granted, but without a token: the lock's keys were changed by hand")

// Outage is the error of a call that has waited long enough for Redis to carry out requests again. err is the
// error of the last request. If that was canceled, its caller was another goroutine. So the result does not
// match context.Canceled, since this call was not canceled.
func Outage(since time.Time, err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New(err.Error())
	}
	return fmt.Errorf("gave up after %v in which no request succeeded; the last error: %w",
		time.Since(since).Round(100*time.Millisecond), err)
}

// Troubled is the error of a call that has ended in an outage. err is why it ended; last, unless nil, is that
// of the last request.
func Troubled(err, last error) error {
	n, ok := err.(*named)
	switch {
	case last == nil:
		return err
	case ok && n.err == ErrNoAnswer && errors.As(last, new(interface{ RedisError() })):
		refused := "Redis refused the last request before the wait was over: " + last.Error()
		return Of(n.what, n.name, Worded(refused, ErrNoAnswer))
	}
	return fmt.Errorf("%w; the last request failed: %s", err, Unnamed(last))
}

// Unanswered returns the error of a wait in which Redis answered nothing and no request failed, with the time
// that it lasted. err is OfWait's, without a holder. atMost is the option's time; 0: there was none. hint is
// a likely reason, in parentheses; "": none is known.
func Unanswered(err error, waited, atMost time.Duration, hint string) error {
	n, ok := err.(*named)
	waited = max(waited.Round(time.Millisecond), time.Millisecond)
	switch {
	case !ok || errors.Is(err, ErrClosed):
		return err
	case n.err != ErrNoAnswer:
		return Of(n.what, n.name, fmt.Errorf("%w; no answer from Redis within %v%s", n.err, waited, hint))
	case atMost > 0:
		text := fmt.Sprintf("no answer from Redis within %v, the wait that WaitAtMost allows%s", atMost, hint)
		return Of(n.what, n.name, Worded(text, ErrNoAnswer))
	}
	text := fmt.Sprintf("no answer from Redis within %v%s", waited, hint)
	return Of(n.what, n.name, Worded(text, ErrNoAnswer))
}

// OfWait is the error when a wait has ended with its context, its session or its time. what is a noun for it,
// as Of has it. holder is nil if none is known.
func OfWait(ctx context.Context, closing bool, what, name string, holder *LockedError) error {
	switch {
	case ctx.Err() != nil && holder != nil:
		by := holder.by()
		if by != "" {
			by = "; " + holder.taken() + by
		}
		return &named{what, name, fmt.Errorf("%w%s%s", OfContext(ctx), by, holder.Hint), Public(holder)}
	case ctx.Err() != nil || closing:
		return Of(what, name, Ended(ctx))
	case holder == nil:
		return Of(what, name, ErrNoAnswer)
	}
	return Public(holder)
}

// Sighting is what was last learned of a holder.
type Sighting struct {
	Holder, About string
	At            time.Time // when that was learned
	Until         time.Time // when its lease would have been over
}

// Locked is the error that names that holder to a wait begun at begun. It is nil for a sighting before begun
// of a lease that was over then. A sighting since stands counts too: others have stood in line since, and it
// is not their turn yet. If stands is nil, none do.
func (s *Sighting) Locked(name string, begun time.Time, stands *time.Time) *LockedError {
	if s == nil || s.At.Before(begun) && !begun.Before(s.Until) && (stands == nil || s.At.Before(*stands)) {
		return nil
	}
	return &LockedError{Name: name, Holder: s.Holder, About: s.About, Remaining: max(0, time.Until(s.Until))}
}

// OfContext matches the error of an ended context and its cause.
func OfContext(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); err != cause {
		return Worded(err.Error()+": "+Bare(cause), err, cause)
	}
	return ctx.Err()
}

// Ended is why a wait is over that its context has ended, or its session.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrClosed
	}
	return OfContext(ctx)
}

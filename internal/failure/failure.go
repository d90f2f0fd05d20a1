// Package failure has the errors of locks, and makes their texts.
//
// Users see a LockedError as an *rlock.LockedError, whose fields are all documented. [Public] converts it.
//
// The error of a lock has the name of the lock (Named). The error of a wait that has ended also names the
// holder, if the holder is known (OfWait). So readers of the error need not inspect the lock.
//
// The text of each error that users get begins with "lockline: ", which occurs only once. A function that
// prefixes another error removes the prefix of that error.
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

// Users compare an error with these errors by errors.Is. Package rlock exports them.
var (
	ErrLocked  = errors.New("lockline: locked by another holder")
	ErrLost    = errors.New("lockline: lock lost")
	ErrNotHeld = errors.New("lockline: lock not held")
	ErrClosed  = errors.New("lockline: session closed")
)

var (
	// ErrUnlocked matches the cause with which Unlock ends the context of a hold. The cause has the text of
	// UnlockedText, which names the lock.
	ErrUnlocked = fmt.Errorf("%w: unlocked", ErrNotHeld)
	// ErrUnlockedBefore is the error of a method of a Hold that was unlocked before.
	ErrUnlockedBefore = fmt.Errorf("%w: it was unlocked before", ErrNotHeld)
	// ErrNilHold is the error of a method of a nil Hold or of a zero Hold.
	ErrNilHold = fmt.Errorf("%w: the Hold is nil, because the call that should have returned it failed: "+
		"check the error of that call first", ErrNotHeld)
	// ErrNilContext is the error of a call without a context.
	ErrNilContext = errors.New("lockline: the context is nil")
	// ErrNilSession is the error of each use of a lock that was made without a session.
	ErrNilSession = errors.New("lockline: the session is nil or a zero value; make one with rlock.NewSession")
)

// UnlockedText returns the text of the cause with which Unlock ends the context of a hold. The argument what
// is the noun of the lock's kind, such as "semaphore"; "" means "lock". Code that uses the context after the
// Unlock gets this text. The text names the lock of the hold, because this code may be acquiring another
// lock.
func UnlockedText(what, name string) string {
	return fmt.Sprintf("%v: this context belonged to a hold of %s %q that was unlocked; "+
		"go on with the context that this hold was acquired with", ErrNotHeld, cmp.Or(what, "lock"), name)
}

// SelfHint is the hint in the error of a waiter if its own session holds the lock.
const SelfHint = " (held by this same session: if the holder called this Lock, " +
	"it must pass the context that its own Lock returned)"

// SelfPermitsHint returns the hint in the error of a waiter for permits if its own session holds n permits.
func SelfPermitsHint(n int64) string {
	return fmt.Sprintf(" (permits that this same session holds: %d; "+
		"if their holder called this Acquire, it waits for itself)", n)
}

// UpgradeHint is the hint in the error of a writer if readers of its own session keep it out.
const UpgradeHint = " (this same session reads: a reader cannot become the writer, and must unlock first)"

// Public converts a LockedError to an *rlock.LockedError, and returns any other error unchanged. Package
// rlock sets it.
var Public = func(err error) error { return err }

// LockedError is the error of a call that a holder has kept out. It matches ErrLocked.
type LockedError struct {
	What      string // noun of the kind; "" means a lock
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

// taken returns the beginning of the text, before the holder (by).
func (e *LockedError) taken() string {
	switch {
	case e.What == "":
		return "locked"
	case e.by() == "":
		return "not enough permits are free"
	}
	return "not enough permits are free; some are held"
}

// versions matches a process id and a host in a holder info, with the versions that follow. Messages leave
// the versions out, because they would only make a message longer.
var versions = regexp.MustCompile(`^(\S*)/\d+(:\S*)?`)

// by returns the part of the text about the holder, as far as the holder is known. If the owner field ends in
// "~", the hold was unlocked.
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

// Bare returns the text of an error without the prefix.
func Bare(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

// worded is an error that has its own text and matches other errors.
type worded struct {
	text string
	errs []error
}

func (e *worded) Error() string   { return e.text }
func (e *worded) Unwrap() []error { return e.errs }

// Worded returns an error with this text. The error matches each target that one of errs matches.
func Worded(text string, errs ...error) error { return &worded{text, errs} }

// Within prefixes the text of an error.
func Within(where string, err error) error {
	return Worded(prefix+where+": "+Bare(err), err)
}

// Join is like errors.Join, but the text has one line. If only one error is not nil, Join returns this error
// unchanged.
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

// named is an error with the kind and the name of its lock. If a context has ended a wait, errors.As also
// finds the holder in the error of this wait. But the error does not match ErrLocked, because a caller that
// ends its own wait handles that differently from a refusal.
type named struct {
	what   string // noun of the kind; "" means a lock
	name   string
	err    error
	holder error // nil if no holder is known
}

// Named prefixes err with the name of a lock.
func Named(name string, err error) error { return Of("", name, err) }

// Of prefixes err with the name of a lock and the noun of its kind. If what is "", the noun is "lock".
func Of(what, name string, err error) error { return &named{what: what, name: name, err: err} }

func (e *named) Error() string {
	return fmt.Sprintf("%s%s %q: %s", prefix, cmp.Or(e.what, "lock"), e.name, Bare(e.err))
}
func (e *named) Unwrap() error      { return e.err }
func (e *named) As(target any) bool { return e.holder != nil && errors.As(e.holder, target) }

// Unnamed returns the text of an error without the prefix and the name of its lock. The text is used inside
// another error that already has this prefix and this name.
func Unnamed(err error) string {
	for n, ok := err.(*named); ok; n, ok = err.(*named) {
		err = n.err
	}
	return Bare(err)
}

// ErrNoAnswer means that a wait has ended before Redis replied, so no holder is known.
var ErrNoAnswer = fmt.Errorf("no answer from Redis before the wait was over: %w", os.ErrDeadlineExceeded)

// The reasons for which a hold was lost, for operators.
var (
	ErrExpired = errors.New("its lease ran out before it was renewed")
	// ErrFixedLeaseOver takes the place of ErrExpired for a fixed lease (WithLease), which is not renewed.
	ErrFixedLeaseOver = errors.New("its fixed lease ran out before Unlock")
	ErrGone           = errors.New("it is not in Redis any more: its lease ran out there, it was forced, " +
		"or data was lost")
)

// Lost returns the error of a hold that was lost for a reason. reason is nil if the reason is not known.
func Lost(reason error) error {
	if reason == nil {
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, reason)
}

// LossReason returns the reason for which the watchdog has ended a lease.
func LossReason(deadlinePassed bool) error {
	if deadlinePassed {
		return ErrExpired
	}
	return ErrGone
}

// ErrForgotten is the cause with which the context of a hold ends if the garbage collector finds its Hold
// without an Unlock.
var ErrForgotten = fmt.Errorf("%w: neither its Hold nor its context could be reached any more, "+
	"so it was released", ErrNotHeld)

// ErrNoToken means that the hash of the lock has no token, because somebody has changed it.
var ErrNoToken = errors.New("granted, but without a token: the lock's keys were changed by hand")

// Outage returns the error of a call that gives up because no request has succeeded since the time since. err
// is the error of the last request. Another goroutine may have canceled that request. The result does not
// match context.Canceled, because this call was not canceled.
func Outage(since time.Time, err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New(err.Error())
	}
	text := fmt.Sprintf("gave up after %v in which no request succeeded; the last error: %v",
		time.Since(since).Round(100*time.Millisecond), err)
	return Worded(text, err, ErrGaveUp)
}

// ErrGaveUp marks the errors that Outage returns.
var ErrGaveUp = errors.New("gave up")

// Troubled adds the error of the last request to the error of a call that has ended in an outage. last is
// nil if no request has failed.
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

// Unanswered returns the error of a wait in which Redis has not replied. waited is the length of the wait.
// err is the error that OfWait returns if no holder is known. atMost is the time of WaitAtMost, or 0 without
// that option. hint is a likely reason in parentheses, or "" if none is known.
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

// OfWait returns the error of a wait. The wait has ended because its context has ended, because the time of
// WaitAtMost has passed, or because the session closes. what is the noun of the kind, as for Of. holder is
// nil if no holder is known.
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

// Sighting is the holder of a lock as a reply has shown it.
type Sighting struct {
	Holder, About string
	At            time.Time // when the reply came
	Until         time.Time // when the holder's lease ends, according to the reply
}

// Locked returns the error of a waiter that this holder has kept out. The waiter began to wait at begun.
// Locked returns nil in two cases:
//   - s is nil;
//   - the sighting is older than the wait, and the holder's lease had ended when the wait began.
//
// lastQueued is the time of the last request to which Redis replied that the waiter must wait, or nil if
// there was none. A sighting after this time counts even in the second case, because other sessions are still
// served first.
func (s *Sighting) Locked(name string, begun time.Time, lastQueued *time.Time) *LockedError {
	isStale := lastQueued == nil || s != nil && s.At.Before(*lastQueued)
	if s == nil || s.At.Before(begun) && !begun.Before(s.Until) && isStale {
		return nil
	}
	return &LockedError{Name: name, Holder: s.Holder, About: s.About, Remaining: max(0, time.Until(s.Until))}
}

// OfContext returns an error that matches the error of an ended context and its cause. It returns nil if ctx
// has not ended.
func OfContext(ctx context.Context) error {
	// A context of a user's own type may have an error that Go cannot compare.
	if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(err, cause) {
		return Worded(err.Error()+": "+Bare(cause), err, cause)
	}
	return ctx.Err()
}

// Ended returns the error of a wait whose context has ended, or whose session closes.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrClosed
	}
	return OfContext(ctx)
}

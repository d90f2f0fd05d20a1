package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/wire"
)

var (
	ErrLocked  = errors.New("lockline: locked by another holder")
	ErrLost    = errors.New("lockline: lock lost")
	ErrNotHeld = errors.New("lockline: lock not held")
	ErrClosed  = errors.New("lockline: session closed")

	ErrNotReplicated = errors.New("lockline: not replicated")
)

// Why a lock was lost, for operators.
var (
	errExpired = errors.New("its lease ran out before it was renewed")
	errGone    = errors.New("it is not in Redis any more: its lease ran out there, it was forced, or data was lost")
)

// errUnlocked is why the context of an unlocked hold has ended, for whoever goes on with it.
var errUnlocked = fmt.Errorf("%w: this context belonged to a hold that was unlocked; go on with the one that its Lock was given", ErrNotHeld)

// errOver: a copy of the request was granted, and that grant was over before an answer came.
var errOver = errors.New("granted, and over (forced, or its lease ran out) before the answer came")

// Public converts errors that are structs to the types that users know, those of package rlock, which sets it.
var Public = func(err error) error { return err }

// LockedError is the ErrLocked of TryLock and of a wait that ran out.
type LockedError struct {
	Name      string
	Holder    string
	About     string
	Remaining time.Duration
	Hint      string
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("lockline: lock %q: locked%s%s", e.Name, e.who(), e.Hint)
}

// who is as much of the holder as is known.
func (e *LockedError) who() (msg string) {
	if e.Holder != "" {
		msg += " by " + e.Holder
	}
	if e.About != "" {
		msg += " (" + e.About + ")"
	}
	if e.Remaining > 0 {
		msg += fmt.Sprintf(" for another %v unless renewed or released", e.Remaining)
	}
	return msg
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// prefix begins the text of each error, once: whatever puts words before another error takes it from that.
const prefix = "lockline: "

// Bare is an error's text without the prefix.
func Bare(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

// within says where an error happened.
type within struct {
	where string
	err   error
}

// Within puts words before an error.
func Within(where string, err error) error { return &within{where, err} }

func (e *within) Error() string { return prefix + e.where + ": " + Bare(e.err) }
func (e *within) Unwrap() error { return e.err }

// joined is several errors, in one line of text.
type joined struct{ errs []error }

// Join is errors.Join with the text in one line. It returns a single error as it is.
func Join(errs ...error) error {
	var some []error
	for _, err := range errs {
		if err != nil {
			some = append(some, err)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case 1:
		return some[0]
	}
	return &joined{some}
}

func (j *joined) Error() string {
	text := j.errs[0].Error()
	for _, err := range j.errs[1:] {
		if strings.Contains(text, prefix) {
			text += "; " + Bare(err)
		} else {
			text += "; " + err.Error()
		}
	}
	return text
}

func (j *joined) Unwrap() []error { return j.errs }

// nameError puts the lock's name before what happened to it.
type nameError struct {
	name string
	err  error
	hint string
}

func (e *nameError) Error() string {
	return fmt.Sprintf("%slock %q: %s%s", prefix, e.name, Bare(e.err), e.hint)
}
func (e *nameError) Unwrap() error { return e.err }

// waitError is the error of a wait that its context ended. errors.As finds in it who holds the lock, but it is no
// ErrLocked: a caller that ends its own wait does other things than one that was refused.
type waitError struct {
	nameError
	locked error
}

func (e *waitError) As(target any) bool { return errors.As(e.locked, target) }

// failed is a request's error for the user.
func (k *Keys) failed(err error) error {
	e := &nameError{name: k.Name, err: err}
	var reply redis.Error
	answer := ""
	if errors.As(err, &reply) {
		answer = reply.Error()
	}
	switch {
	case strings.Contains(err.Error(), "WRONGTYPE"), errors.As(err, new(wire.Unexpected)):
		e.hint = fmt.Sprintf(" (the lock's keys are %q and %q)", k.lock(), k.memory())
	case strings.HasPrefix(answer, "MOVED "):
		e.hint = " (the server is a node of a Cluster, and this client did not go where it says: use redis.NewClusterClient)"
	case strings.HasPrefix(answer, "ERR unknown command") && strings.Contains(strings.ToUpper(answer), "EVALSHA"):
		e.hint = " (a Sentinel answers so: it knows where the master is, and keeps no locks itself: use redis.NewFailoverClient)"
	}
	return e
}

// valueError is the error of a script that found a value in a key that Lockline did not write (bad in shared.lua).
type valueError struct{ key, field, value, why string }

// RedisError: it is the server's answer, and will be the same until somebody mends the key.
func (e *valueError) RedisError() {}

func (e *valueError) Error() string {
	field := ""
	if e.field != "" {
		field = fmt.Sprintf(" in its field %q", e.field)
	}
	return fmt.Sprintf("the key %q has %q%s, %s, which Lockline did not write; free the lock by force, or wait until nobody holds it, and delete that key: "+
		"tokens go on from the server's clock", e.key, e.value, field, e.why)
}

// refusal decodes an error that a script of Lockline's raised, and returns any other as it is.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), "LOCKLINE ")
	text, _, _ = strings.Cut(text, " ")
	words := strings.Split(text, ",")
	if !ok || len(words) != 4 {
		return err
	}
	for i := range words {
		words[i], _ = url.PathUnescape(strings.ReplaceAll(words[i], "=", "%"))
	}
	return &valueError{words[0], words[1], words[2], words[3]}
}

// ctxError matches the error of a context and its cause.
type ctxError struct{ err, cause error }

func ctxErr(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); err != cause {
		return &ctxError{err, cause}
	}
	return ctx.Err()
}

func (e *ctxError) Error() string   { return e.err.Error() + ": " + Bare(e.cause) }
func (e *ctxError) Unwrap() []error { return []error{e.err, e.cause} }

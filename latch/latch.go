package latch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// Latch is the name of a latch, used by one session. It has no state of its own. It is safe for concurrent
// use.
//
// When the session is closed, running calls end, and all methods return [rlock.ErrClosed]. A method returns
// soon after its context has ended, even if Redis does not reply. The request may take effect nevertheless.
// If a request has no reply, it is sent up to four times. After that, the method returns the last error. A
// wait sends its requests for longer, see [Latch.Wait].
type Latch struct {
	s        *session.Session
	keys     *protocol.Keys // a single key, which is also the name of the channel
	lifetime time.Duration
	err      error // error of New, which every method returns
}

const noun = "latch" // for errors

// MinLifetime is the shortest lifetime of a latch.
const MinLifetime = time.Minute

// maxCount is the highest count. It is below 2^53, up to which Lua represents integers exactly. It does not
// fit in an int of 32 bits.
const maxCount int64 = 9e15

// Option changes a Latch.
type Option func(*Latch)

// WithLifetime sets the time for which Redis keeps a run after the last call by any process. It is 24 h by
// default. A Wait counts as a call until it returns. The Latch whose TrySet begins the run sets the lifetime
// of the run. The lifetime is at least [MinLifetime] and the session's lease, and at most ten years.
func WithLifetime(d time.Duration) Option { return func(l *Latch) { l.lifetime = d } }

// New names a latch. It does no I/O and is cheap. Any string of 1 to 512 bytes is a name. If the
// session, the name or an option is invalid, every method returns an error.
//
// A latch and a lock of the same name have no effect on each other.
func New(s *rlock.Session, name string, options ...Option) *Latch {
	l := &Latch{s: inner.Session(s), lifetime: 24 * time.Hour}
	for _, o := range options {
		if o != nil {
			o(l)
		}
	}
	if l.s == nil {
		l.err = failure.Of("latch", name, failure.ErrNilSession)
		return l
	}
	l.keys, l.err = protocol.NewKeys(l.s.Prefix, protocol.Latch, name)
	least := max(MinLifetime, l.s.Lease)
	if l.err != nil {
		return l
	}
	if err := protocol.CheckDuration("WithLifetime", l.lifetime, least, protocol.MaxLease); err != nil {
		l.err = l.fail(err)
	}
	return l
}

// Name returns the latch's name. It returns "" for a nil or zero Latch, and if New got an invalid session
// or name.
func (l *Latch) Name() string {
	if l == nil || l.keys == nil {
		return ""
	}
	return l.keys.Name
}

// fail returns err with the name of the latch.
func (l *Latch) fail(err error) error { return failure.Of(noun, l.keys.Name, err) }

func (l *Latch) died(party string) error { return &PartyDiedError{Name: l.keys.Name, Party: party} }

// check returns the error of an invalid call.
func (l *Latch) check(ctx context.Context) error {
	switch {
	case l == nil || l.s == nil && l.err == nil:
		return errNil
	case l.err == nil && ctx == nil:
		return l.fail(failure.ErrNilContext)
	}
	return l.err
}

// If there is no run, TrySet begins one with the count n. It reports whether it did. n is at least 1. If ctx
// ends before the reply, or an error says that the outcome is not known, the run may have begun. TrySet
// blocks for one round trip.
func (l *Latch) TrySet(ctx context.Context, n int) (set bool, err error) {
	if err := l.check(ctx); err != nil {
		return false, err
	}
	if n < 1 || int64(n) > maxCount {
		return false, l.fail(fmt.Errorf("a count is from 1 to %d, not %d", maxCount, n))
	}
	// A message with the id of a run ends waits, so the id must not be guessable from the id of the session.
	r := &request{l: l, ctx: ctx, script: setScript, id: l.s.Attempt() + ":" + rand.Text(),
		argv: []any{n, protocol.Milliseconds(l.lifetime)}}
	a, err := r.do()
	return a.rest == "1", err
}

// once sends a request that takes effect once.
func (l *Latch) once(ctx context.Context, sc *wire.Script) (answer, error) {
	if err := l.check(ctx); err != nil {
		return answer{}, err
	}
	return (&request{l: l, ctx: ctx, script: sc, id: l.s.Attempt()}).do()
}

// CountDown counts down by one. If the count is then 0, it ends the run and wakes all waiters. If there is no
// run, it does nothing. A call counts once, even if its request is sent several times. If ctx ends before the
// reply, or an error says that the outcome is not known, the call may have counted. CountDown blocks for one
// round trip.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.once(ctx, countScript)
	return err
}

// CountDownAndWait calls CountDown, and then waits for the end of the run in which it has counted. Its error
// can come from either step. If the error comes from the wait, the call has counted. [ErrDeleted] and
// [ErrPartyDied] come from the wait. An error of ctx can come from either step, so the call may have counted.
func (l *Latch) CountDownAndWait(ctx context.Context) error {
	a, err := l.once(ctx, countScript)
	if err != nil {
		return err
	}
	count, run, _ := strings.Cut(a.rest, " ")
	if count == "0" {
		return nil
	}
	return l.wait(ctx, run)
}

// Count returns the present count. It returns 0 if there is no run, and an error if an int of this platform
// is too small for the count. It blocks for one round trip.
func (l *Latch) Count(ctx context.Context) (int, error) {
	st, err := l.look(ctx, "", "")
	if err != nil {
		return 0, err
	}
	return l.fits(st.count)
}

// fits returns a count as an int, or an error if an int of this platform is too small for it.
func (l *Latch) fits(count int64) (int, error) {
	if n := int(count); int64(n) == count {
		return n, nil
	}
	return 0, l.fail(fmt.Errorf("its count is %d, and an int of this platform has %d at most",
		count, math.MaxInt))
}

// Delete ends the current run, and reports whether there was one. Calls of Wait for this run return
// [ErrDeleted]. If ctx ends before the reply, or an error says that the outcome is not known, the run may
// have been deleted. Delete blocks for one round trip.
func (l *Latch) Delete(ctx context.Context) (deleted bool, err error) {
	a, err := l.once(ctx, deleteScript)
	return a.rest == "1", err
}

// State describes a latch at one instant.
type State struct {
	Name    string
	Count   int      // 0 means that there is no run
	Parties []Member // parties that have joined but not counted, in the order in which their leases end
}

// Member describes a party that has joined.
type Member struct {
	Name    string // name of the party
	Owner   string // id of the session, a colon, and the number of the Join
	Session string // id of the session
	// Remaining is the time until the lease ends, unless it is renewed. 0 means that it has ended, so waits
	// end with a *[PartyDiedError].
	Remaining time.Duration
}

// Inspect returns the count and the parties. It changes nothing, and does not extend the lifetime of the
// latch. It cannot list waiters, because Redis does not know them. It blocks for one request, but at most
// until ctx ends.
func (l *Latch) Inspect(ctx context.Context) (State, error) {
	st := State{Name: l.Name()}
	a, err := l.ask(ctx, inspectScript)
	if err != nil {
		return st, err
	}
	count, text, _ := strings.Cut(a.rest, " ")
	n, err := strconv.ParseInt(count, 10, 64)
	leases := map[string]string{}
	if err != nil || json.Unmarshal([]byte(text), &leases) != nil {
		return st, l.unexpected(a)
	}
	if st.Count, err = l.fits(n); err != nil {
		return st, err
	}
	for name, lease := range leases {
		till, owner, _ := strings.Cut(lease, " ")
		session, _, _ := strings.Cut(owner, ":")
		left := time.Duration(protocol.TokenOrZero(till)-a.now) * time.Microsecond
		st.Parties = append(st.Parties, Member{name, owner, session, max(left, 0)})
	}
	slices.SortFunc(st.Parties, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Name, b.Name))
	})
	return st, nil
}

var (
	// ErrDeleted means that the latch was deleted before its count was 0.
	ErrDeleted = errors.New("lockline: latch deleted")

	// ErrGone means that Redis does not know the run any more. Its data were lost or have expired, or the run
	// ended more than two minutes ago. If a run ends before a Party has counted, the context of the Party has
	// this cause.
	ErrGone = errors.New("lockline: nothing is known of this run of the latch any more")

	// ErrPartyDied means that the lease of a party ended before it counted. The error is a *[PartyDiedError].
	ErrPartyDied = errors.New("lockline: a party of the latch died")

	// ErrNoCount means that there is no count left for a party. Either there is no run, or each remaining
	// count is leased to a party.
	ErrNoCount = errors.New("lockline: no count left to join for")

	// ErrPartyExists means that another party has joined by this name, and its lease has not ended.
	ErrPartyExists = errors.New("lockline: a party of this name has joined")

	errNil     = errors.New("lockline: the Latch is nil or a zero value; make one with New")
	errUnknown = errors.New("it is not known whether the request took effect: " +
		"its last copy came too late to tell")
)

// PartyDiedError names the party that died. It matches [ErrPartyDied].
type PartyDiedError struct {
	Name  string // name of the latch
	Party string // name of the party; if several died, the party whose lease ended first
}

func (e *PartyDiedError) Error() string {
	return fmt.Sprintf("lockline: latch %q: the lease of party %q ended before it counted", e.Name, e.Party)
}

// Unwrap makes errors.Is(err, ErrPartyDied) true.
func (e *PartyDiedError) Unwrap() error { return ErrPartyDied }

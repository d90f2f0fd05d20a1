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

// A Latch names a latch for one session. It has no state of its own. It is safe for concurrent use.
//
// When the session is closed, running calls end, and later calls of all methods except Name return an error
// that matches [rlock.ErrClosed].
//
// A method that sends a request usually blocks for one round trip. The first request of a session can take
// two round trips, because the session needs the time of Redis, which only a reply contains. In an outage, a
// request is sent up to five times, and then the method returns the last error. If ctx has no deadline, this
// takes at most the time of the session's watchdog timeout (15 s by default). A wait tolerates longer
// outages, see [Latch.Wait].
//
// A method returns at most 100 ms after the deadline of ctx, even if Redis does not reply. If ctx is canceled
// before its deadline, the method returns at once, with one exception. If Redis stops replying while a
// request is in flight, the method returns after the ReadTimeout of the client. The request may take effect
// even if the method has returned an error.
type Latch struct {
	s        *session.Session
	keys     *protocol.Keys // a single key, which is also the name of the channel
	lifetime time.Duration
	err      error // error of New, which every method except Name returns
}

const noun = "latch" // name of the kind in errors

// MinLifetime is the shortest time that [WithLifetime] accepts.
const MinLifetime = time.Minute

// maxCount is the highest count. It is below 2^53, up to which Lua represents integers exactly. Its type is
// int64, because an int has only 32 bits on some platforms.
const maxCount int64 = 9e15

// An Option of [New] changes the Latch that New returns.
type Option func(*Latch)

// WithLifetime sets the time for which Redis keeps a run that no process uses. It is 24 h by default. The
// package documentation says which calls start this time again. Each run has the lifetime of the Latch whose
// TrySet began the run. d must be at least [MinLifetime], at least the session's watchdog timeout, and at
// most ten years.
func WithLifetime(d time.Duration) Option { return func(l *Latch) { l.lifetime = d } }

// New returns a Latch with this name. It sends no request and is cheap. The name may be any string of 1 to
// 512 bytes. If the session, the name or an option is not valid, every method except Name returns an error.
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

// check returns an error if l is nil or zero, if New has failed, or if ctx is nil.
func (l *Latch) check(ctx context.Context) error {
	switch {
	case l == nil || l.s == nil && l.err == nil:
		return errNil
	case l.err == nil && ctx == nil:
		return l.fail(failure.ErrNilContext)
	}
	return l.err
}

// TrySet begins a run with the count n, unless there already is a run. It reports whether it has begun a run.
// n must be at least 1 and at most 9e15. After an error, the run may have begun all the same, because the
// reply may have been lost. TrySet usually blocks for one round trip.
func (l *Latch) TrySet(ctx context.Context, n int) (set bool, err error) {
	if err := l.check(ctx); err != nil {
		return false, err
	}
	if n < 1 || int64(n) > maxCount {
		return false, l.fail(fmt.Errorf("a count is from 1 to %d, not %d", maxCount, n))
	}
	// A message that contains the id of a run can end waits. So it must not be possible to guess this id from
	// the id of the session.
	r := &request{l: l, ctx: ctx, script: setScript, id: l.s.Attempt() + ":" + rand.Text(),
		argv: []any{n, protocol.Milliseconds(l.lifetime)}}
	a, err := r.do()
	return a.rest == "1", err
}

// once sends a request that takes effect only once, even if several copies of it are sent.
func (l *Latch) once(ctx context.Context, sc *wire.Script) (answer, error) {
	if err := l.check(ctx); err != nil {
		return answer{}, err
	}
	return (&request{l: l, ctx: ctx, script: sc, id: l.s.Attempt()}).do()
}

// CountDown lowers the count by one. If the count is then 0, CountDown ends the run and wakes all waiters. If
// there is no run, it does nothing and returns nil. A call counts once, even if its request is sent several
// times. After an error, the call may have counted all the same, because the reply may have been lost.
// CountDown usually blocks for one round trip.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.once(ctx, countScript)
	return err
}

// CountDownAndWait does the same as CountDown, and then waits for the end of the run in which it has counted.
// If there is no run, it returns nil. The error can come from either step. If it matches [ErrDeleted],
// [ErrGone] or [ErrPartyDied], the call has counted. After any other error, the call may have counted.
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

// Count returns the current count. It returns 0 if there is no run, and an error if an int of this platform
// is too small for the count. It usually blocks for one round trip.
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
// [ErrDeleted]. After an error, the run may have been deleted all the same, because the reply may have been
// lost. Delete usually blocks for one round trip.
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
	Owner   string // id of the session, a colon, and a number that is different for each Join
	Session string // id of the session
	// Remaining is the time until the lease ends, unless the lease is renewed. 0 means that the lease has
	// ended, so calls of Wait return a *[PartyDiedError].
	Remaining time.Duration
}

// Inspect returns the count and the parties. It changes nothing, and does not extend the lifetime of the
// latch. It cannot list waiters, because Redis does not store them. It usually blocks for one round trip.
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
		till, owner, _ := strings.Cut(strings.TrimSuffix(lease, " R"), " ")
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

	// ErrGone means that Redis does not know the run any more. The data of the run were lost or have expired,
	// or the run ended more than two minutes ago. If a run ends before one of its parties has counted,
	// ErrGone is usually the cause with which the context of that party ends.
	ErrGone = errors.New("lockline: nothing is known of this run of the latch any more")

	// ErrPartyDied means that the lease of a party ended before the party counted. An error that matches
	// ErrPartyDied is a *[PartyDiedError].
	ErrPartyDied = errors.New("lockline: a party of the latch died")

	// ErrNoCount means that there is no count left for a party. Either there is no run, or each remaining
	// count belongs to a party, which may have died.
	ErrNoCount = errors.New("lockline: no count left to join for")

	// ErrPartyExists means that another party has joined by this name, and the lease of that party has not
	// ended.
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

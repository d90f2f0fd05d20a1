package latch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Latch is one latch's name in a session. It holds no state of its own. Safe for concurrent use.
//
// All methods return [rlock.ErrClosed] once the session is closed, and end with it. They return soon after
// their context has ended, also while Redis does not answer; the request may take effect all the same then. A
// request that is not answered is sent up to four times, and the last error is returned then.
type Latch struct {
	s        *session.Session
	keys     *protocol.Keys
	key      string
	boxed    []any // key
	channel  any   // string
	lifetime time.Duration
	err      error // of New, returned by every use
}

// MinLifetime is the shortest lifetime of a latch.
const MinLifetime = time.Minute

// maxCount is the highest count: Lua's numbers are exact that far.
const maxCount = 9e15

// Option changes a Latch.
type Option func(*Latch)

// WithLifetime sets for how long a run that is under way is kept in Redis after the last call for it by any
// process, 24 h by default. Waiting is such a call all the time. The lifetime is that of the TrySet that
// begins the run. It is at least [MinLifetime], and at least the session's lease.
func WithLifetime(d time.Duration) Option { return func(l *Latch) { l.lifetime = d } }

// New names a latch. It does no I/O and is cheap. Any string of 1 to 512 bytes is a name. What is wrong with
// a session, name or option, every method says.
func New(s *rlock.Session, name string, options ...Option) *Latch {
	l := &Latch{s: inner.Session(s), lifetime: 24 * time.Hour}
	for _, o := range options {
		if o != nil {
			o(l)
		}
	}
	switch {
	case l.s == nil:
		l.err = errors.New("lockline: the session is nil")
	case name == "" || len(name) > protocol.MaxName:
		l.err = fmt.Errorf("lockline: the name of a latch has 1 to %d bytes, not %d: %.40q",
			protocol.MaxName, len(name), name)
	case l.lifetime < max(MinLifetime, l.s.Lease):
		l.err = fmt.Errorf("lockline: latch %q: WithLifetime: %v is shorter than %v",
			name, l.lifetime, max(MinLifetime, l.s.Lease))
	case l.lifetime > protocol.MaxLease:
		l.err = fmt.Errorf("lockline: latch %q: WithLifetime: %v is longer than ten years (%v)",
			name, l.lifetime, protocol.MaxLease)
	default:
		l.keys, l.err = protocol.NewKeys(l.s.Prefix, protocol.Latch, name)
	}
	if l.err == nil {
		l.key, l.channel = l.keys.Lock(), l.keys.Lock()
		l.boxed = []any{l.key}
	}
	return l
}

// Name is the latch's name; "" of a Latch that has none.
func (l *Latch) Name() string {
	if l == nil || l.keys == nil {
		return ""
	}
	return l.keys.Name
}

// TrySet begins a run with the count n, unless one is under way, and reports whether it did. n is at least 1.
// If the context ends first, or an error says that the outcome is not known, the run may have begun. It
// blocks for one round trip.
func (l *Latch) TrySet(ctx context.Context, n int) (set bool, err error) {
	b, done, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if n < 1 || n > maxCount {
		return false, l.fail(fmt.Errorf("a count is from 1 to %.0f, not %d", maxCount, n))
	}
	a, err := l.once(b, setScript, n, protocol.Milliseconds(l.lifetime))
	if err != nil {
		return false, err
	}
	return l.flag(a, 'S')
}

// flag reads a reply that says yes or no.
func (l *Latch) flag(a answer, status byte) (bool, error) {
	if a.status != status || a.rest != "0" && a.rest != "1" {
		return false, l.unexpected(a)
	}
	return a.rest == "1", nil
}

// CountDown counts down by one. At 0 it ends the run and wakes all that wait for it. Where no run is under
// way it does nothing. It is counted once, however often its request is sent. If the context ends first, or
// an error says that the outcome is not known, it may have been counted. It blocks for one round trip.
func (l *Latch) CountDown(ctx context.Context) error {
	b, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	a, err := l.once(b, countScript, l.channel)
	if err != nil {
		return err
	}
	_, _, err = l.counted(a)
	return err
}

// counted reads the reply to a count down: the run, and its count. run is "" where none was under way.
func (l *Latch) counted(a answer) (run string, count int, err error) {
	if a.status == 'C' && a.rest == "" {
		return "", 0, nil
	}
	run, n, _ := strings.Cut(a.rest, " ")
	if count, err = strconv.Atoi(n); a.status != 'C' || err != nil {
		return "", 0, l.unexpected(a)
	}
	return run, count, nil
}

// CountDownAndWait is CountDown, and then Wait for the run that was counted down. Its error may be that of
// either. After one of the wait (as [ErrDeleted], [ErrPartyDied], or of the context if that lasts for longer
// than a round trip), it was counted.
func (l *Latch) CountDownAndWait(ctx context.Context) error {
	b, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	a, err := l.once(b, countScript, l.channel)
	if err != nil {
		return err
	}
	run, count, err := l.counted(a)
	if err != nil || count == 0 {
		return err
	}
	return l.wait(b, run, state{})
}

// Count is the present count; 0 where no run is under way. It blocks for one round trip.
func (l *Latch) Count(ctx context.Context) (int, error) {
	b, done, err := l.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	st, err := l.look(b, "")
	return st.count, err
}

// Delete ends the run that is under way, and reports whether there was one. Those that wait for it return
// [ErrDeleted]. If the context ends first, or an error says that the outcome is not known, it may have been
// deleted. It blocks for one round trip.
func (l *Latch) Delete(ctx context.Context) (deleted bool, err error) {
	b, done, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	a, err := l.once(b, deleteScript, l.channel)
	if err != nil {
		return false, err
	}
	return l.flag(a, 'D')
}

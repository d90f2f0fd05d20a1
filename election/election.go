package election

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

var (
	proclaimScript = wire.Named("election/proclaim")
	leaderScript   = wire.Named("election/leader")
	retractScript  = wire.Named("election/retract")
)

// MaxValue is the largest length of a leader's value, in bytes.
const MaxValue = 64 << 10

// An Election names an election for one session. It keeps no state of a campaign, so any number of goroutines
// can use it. Several Elections with the same name are the same election. On a nil or zero Election, every
// method except Name returns or yields an error.
type Election struct {
	session *session.Session
	lock    *rlock.Mutex
}

// New returns the election with this name. It sends no request and is cheap. The name may be any string of 1
// to 512 bytes. If the name or the session is not valid, every method except Name returns or yields an error
// that says so.
//
// The leader holds the fair lock of this name. So nobody leads while other code holds this lock through
// package fairlock. Locks of other kinds with this name have no effect on the election.
func New(s *rlock.Session, name string) *Election {
	return &Election{inner.Session(s), fairlock.New(s, name)}
}

// Name returns the name of the election, which is also the name of its fair lock.
func (e *Election) Name() string { return e.mutex().Name() }

func (e *Election) mutex() *rlock.Mutex {
	if e == nil {
		return nil
	}
	return e.lock
}

// check returns an error if e or ctx is not valid.
func (e *Election) check(ctx context.Context) error { return inner.Mutex(e.mutex()).CheckUse(ctx) }

func (e *Election) keys() *protocol.Keys { return inner.Mutex(e.lock).Keys() }

// channel returns the channel on which the scripts announce that the leader's value has changed.
func (e *Election) channel() string { return e.keys().LockKey() }

// fail returns err with the name of the election.
func (e *Election) fail(err error) error { return failure.Named(e.keys().Name, err) }

// Leader is a leader and its value at one instant. The zero Leader means that there is no leader.
type Leader struct {
	Value string // the leader's newest value that Redis has stored
	Token int64  // fencing token of the leadership; 0 means that there is no leader
	Owner string // id of the session, a colon, and the number of the acquisition, as in rlock.State
}

// None reports whether there is no leader.
func (l Leader) None() bool { return l.Token == 0 }

// Leader returns the present leader, and reports whether there is a leader. There is none before the first
// leader is elected. There is also none from the end of a leadership until the next leader has stored its
// first value. Leader blocks for the reply, at most until ctx ends. If ctx has no deadline, Leader blocks for
// at most the watchdog timeout of the session. The error matches ctx.Err() if ctx ended, [rlock.ErrClosed] if
// the session is closed, or os.ErrDeadlineExceeded if Redis has not replied within the watchdog timeout. Any
// other error is an error of go-redis, or the error of a mistake, such as a nil context.
func (e *Election) Leader(ctx context.Context) (Leader, bool, error) {
	if err := e.check(ctx); err != nil {
		return Leader{}, false, err
	}
	v, err := e.look(ctx, "")
	return v.Leader, !v.None(), err
}

// Inspect returns the leader as the holder, and the waiting candidates in the order of the queue. A holder
// leads only after it has stored its first value. A leader that has died is listed until its lease
// has expired. A candidate that has died is listed until its waiter timeout has passed, and a later request
// has removed it from the queue. Inspect sends one request, which changes nothing. The bounds of its wait and
// its errors are the same as for [Election.Leader].
func (e *Election) Inspect(ctx context.Context) (rlock.State, error) { return e.mutex().Inspect(ctx) }

// Observe first yields the present leader, or the zero Leader if there is none. When the leader or its value
// has changed, Observe yields the new state. It may skip a state that lasts only for a short time, for
// example a leader that resigns at once. The token of a leader is never smaller than the token of a leader
// that Observe has yielded before. After a value of a leader, Observe yields no older value of the same
// leader.
//
// Observe ends when the loop is left, or after an error. It yields the error last, together with the zero
// Leader. The error matches ctx.Err() if ctx ended, or [rlock.ErrClosed] if the session was closed. Any other
// error does not go away by waiting. Examples are the error of a mistake, such as a nil context, and an error
// of go-redis because of a missing right. Observe does not end in an outage. It yields nothing while the
// outage lasts, and reads the state again when the outage ends.
//
// Redis publishes a message when a leader's value is stored, and when the value is deleted after Resign. Each
// message makes Observe read the state. Observe also reads the state when the leader's lease would have
// expired without a renewal. So it notices when a leader has died or an operator has freed the lock. While
// there is no leader, Observe reads the state once per watchdog timeout of the session, because a message can
// get lost between the nodes of a Cluster. All loops over Observe in a session share the subscription
// connection of the session, but a slow loop does not delay the others.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.check(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		s := e.session
		w := call.NewWatch(ctx, s, e.channel())
		defer w.Close()
		var seen history
		for w.Wait(); !w.Over(); w.Wait() { // the text of the messages is not used
			v, err := e.look(ctx, s.SoleChannel())
			if err != nil {
				if w.Over() {
					yield(Leader{}, w.EndOfWatch(err, e.fail))
					return
				}
				if !w.Failed(err) {
					yield(Leader{}, err)
					return
				}
				continue
			}
			rest := s.Lease
			if !v.None() && v.left >= 0 {
				rest = v.left + 2*time.Millisecond // Redis rounds to milliseconds
			}
			w.Answered(v.unsubscribed, rest)
			if seen.advance(v) && !yield(seen.shown, nil) {
				return
			}
		}
		yield(Leader{}, w.EndOfWatch(nil, e.fail))
	}
}

// A view is the result of one call of look.
type view struct {
	Leader
	number       int64         // number of the value within the leadership
	left         time.Duration // time until the lease ends, unless it is renewed; negative: it never ends
	unsubscribed bool          // the server has no subscriber to the session's channel
}

// look reads the present leader. If channel is not "", look also reads whether the server has a subscriber to
// this channel. look waits for the reply until ctx or the session ends.
func (e *Election) look(ctx context.Context, channel any) (view, error) {
	o, err := e.do(ctx, leaderScript, channel)
	if err != nil {
		return view{}, err
	}
	v, ok := parse(o.Reply)
	if !ok {
		return view{}, e.keys().Failed("", wire.Unexpected(o.Reply))
	}
	return v, nil
}

// parse parses a reply of election/leader.lua, which is 'N' or 'L LEFT OWNER TOKEN NUMBER VALUE'. A 'D' after
// the first letter means that the server has no subscriber to the session's channel.
func parse(reply string) (v view, ok bool) {
	words := strings.SplitN(reply, " ", 6)
	words[0], v.unsubscribed = strings.CutSuffix(words[0], "D")
	if len(words) == 1 && words[0] == "N" {
		return v, true
	}
	if len(words) != 6 || words[0] != "L" {
		return view{}, false
	}
	left, isTime := protocol.Remaining(words[1])
	token, isToken := protocol.Token(words[3])
	number, err := strconv.ParseInt(words[4], 10, 64)
	v.Leader, v.number, v.left = Leader{Value: words[5], Token: token, Owner: words[2]}, number, left
	return v, isTime && isToken && err == nil
}

// do runs a script and waits for the reply until ctx or the session ends. If ctx has no deadline, do waits
// for at most the session's lease. The script must tolerate a request that arrives late or twice.
func (e *Election) do(ctx context.Context, sc *wire.Script, argv ...any) (wire.Outcome, error) {
	return inner.Mutex(e.lock).Ask(ctx, &request{sc, e.keys(), argv})
}

// A request runs a script on the hash of the lock. The leader's value is the field `leader` of this hash. The
// request does not name the keys of the queue, because these keys often do not exist. While a slot moves, a
// Cluster refuses a request if only some of its keys exist.
type request struct {
	script *wire.Script
	keys   *protocol.Keys
	argv   []any
}

// Request makes one copy of the request. It does not use the time, because all copies are the same.
func (r *request) Request(time.Time) *wire.Request { return r.keys.RequestFew(r.script, r.argv...) }

// checkValue returns an error if a value is too long.
func (e *Election) checkValue(value string) error {
	if len(value) > MaxValue {
		return e.fail(fmt.Errorf("the value has %d bytes, over %d", len(value), MaxValue))
	}
	return nil
}

// A history remembers the last state that one loop over Observe got, and the newest leader and value that
// advance has accepted.
type history struct {
	begun bool
	shown Leader // the last state that was shown

	token  int64 // highest token that advance has accepted
	number int64 // number of the newest value that the leader with this token has proclaimed
}

// advance handles the result of a look, and reports whether there is a new state to show. If Redis has lost
// data, v may have an older leader than before. An older leader counts as no leader.
func (h *history) advance(v view) bool {
	if v.Token < h.token {
		v = view{}
	}
	if v.Token != 0 && v.Token == h.token && v.number < h.number {
		return false // Redis has lost the newer value, which the leader's session stores again
	}
	if !v.None() {
		h.token, h.number = v.Token, v.number
	}
	if h.begun && v.Leader == h.shown {
		return false
	}
	h.begun, h.shown = true, v.Leader
	return true
}

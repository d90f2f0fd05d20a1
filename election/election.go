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

// MaxValue is the length of the longest value, in bytes.
const MaxValue = 64 << 10

// Election is a name in a session. It keeps no state of any campaign, so any number of goroutines can use
// one, and any number of Elections of one name are one election. The zero Election returns an error from
// every method that can.
type Election struct {
	session *session.Session
	lock    *rlock.Mutex
}

// New names an election. It does no I/O and is cheap. Any string of 1 to 512 bytes is a name. What is wrong
// with a name or session, each method returns.
//
// The leader holds the fair lock of this name, so a holder of fairlock's lock keeps everybody from leading. A
// lock of another kind that has this name does not: its holder and the leader are not known to each other.
func New(s *rlock.Session, name string) *Election {
	return &Election{inner.Session(s), fairlock.New(s, name)}
}

// Name is the election's name, and that of its fair lock.
func (e *Election) Name() string { return e.mutex().Name() }

func (e *Election) mutex() *rlock.Mutex {
	if e == nil {
		return nil
	}
	return e.lock
}

// check says what is wrong with a call.
func (e *Election) check(ctx context.Context) error { return inner.Mutex(e.mutex()).CheckUse(ctx) }

func (e *Election) keys() *protocol.Keys { return inner.Mutex(e.lock).Keys() }

// channel is where changes are published.
func (e *Election) channel() string { return e.keys().LockKey() }

// fail puts the name before what happened.
func (e *Election) fail(err error) error { return failure.Named(e.keys().Name, err) }

// Leader is a leader and its value at one instant. The zero Leader says that there is none.
type Leader struct {
	Value string // that it has proclaimed last
	Token int64  // its fencing token, above 0
	Owner string // id of its session, a colon, and the number of the acquisition, as rlock.State has it
}

// None reports whether there is no leader.
func (l Leader) None() bool { return l.Token == 0 }

// Leader asks Redis for the present leader, and reports whether there is one. There is none before the first
// is elected, and from the end of a leadership to the first value of the next. It blocks for one request, not
// longer than ctx. The error matches ctx.Err() if ctx ended, or [rlock.ErrClosed], or is one of go-redis.
func (e *Election) Leader(ctx context.Context) (Leader, bool, error) {
	if err := e.check(ctx); err != nil {
		return Leader{}, false, err
	}
	v, err := e.look(ctx, "")
	return v.Leader, !v.None(), err
}

// Inspect asks Redis for the leader, as the holder, and for the candidates that wait, in the order in which
// they will lead. A holder leads, or is about to proclaim its first value. A candidate that has died is
// listed until its waiter timeout is over and another one was looked for, and a leader that has died until
// its lease is over. It changes nothing, and blocks for one request, not longer than ctx. The errors are
// those of [Election.Leader].
func (e *Election) Inspect(ctx context.Context) (rlock.State, error) { return e.mutex().Inspect(ctx) }

// Observe yields the present leader first, or the zero Leader if there is none, and then each change: another
// leader, another value, or none. Tokens never go backwards, nor do the values of one leader. A state that
// was overtaken before Redis was asked may be skipped, as that of a leader that has resigned at once.
//
// It ends when the loop is left, or with an error, which it yields last, with the zero Leader. The error
// matches ctx.Err() if ctx ended, or [rlock.ErrClosed] if the session was closed, or is one of go-redis that
// waiting does not mend, as that of a missing right. An outage is no error. While it lasts, what was yielded
// last can be outdated, and Observe asks again as soon as it is over.
//
// Messages wake it. It also asks when the leader's lease would be over if it was not renewed since, so it
// notices a leader that has died or was forced. If there is no leader it asks once in the session's lease,
// because nodes of a Cluster can lose a message. It uses the session's subscription connection. A slow loop
// delays no other.
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
		for w.Wait(); !w.Over(); w.Wait() { // that something has changed is all messages say
			v, err := e.look(ctx, s.SoleChannel())
			if err != nil {
				if !w.Failed(err) && !w.Over() {
					yield(Leader{}, err)
					return
				}
				continue
			}
			rest := s.Lease
			if !v.None() && v.left >= 0 {
				rest = v.left + 2*time.Millisecond // Redis counts milliseconds
			}
			w.Answered(v.deaf, rest)
			if seen.advance(v) && !yield(seen.shown, nil) {
				return
			}
		}
		yield(Leader{}, e.fail(failure.Ended(ctx)))
	}
}

// view is what one look has found.
type view struct {
	Leader
	number int64         // of the value
	left   time.Duration // of the lease, unless it is renewed; negative: it has no end
	deaf   bool          // the server knows of nobody that listens for the session
}

// look asks for the present leader, and whether the server knows of listeners to a channel, unless that is
// "". It blocks for the answer, as long as ctx and the session last.
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

// parse reads 'N' or 'L PTTL OWNER TOKEN NUMBER VALUE', where a 'D' may stand behind the letter.
func parse(reply string) (v view, ok bool) {
	words := strings.SplitN(reply, " ", 6)
	words[0], v.deaf = strings.CutSuffix(words[0], "D")
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

// do runs a script and blocks for the reply, as long as ctx and the session last. Copies of the request may
// come late or twice.
func (e *Election) do(ctx context.Context, sc *wire.Script, argv ...any) (wire.Outcome, error) {
	return inner.Mutex(e.lock).Ask(ctx, &protocol.Same{Script: sc, Keys: e.keys(), Argv: argv})
}

// checkValue says what is wrong with a value.
func (e *Election) checkValue(value string) error {
	if len(value) > MaxValue {
		return e.fail(fmt.Errorf("the value has %d bytes, over %d", len(value), MaxValue))
	}
	return nil
}

// history is what one observer was shown.
type history struct {
	begun bool
	shown Leader // last

	token, number int64 // the highest token that was shown, and the last value's number of that leader
}

// advance takes what a look has found and reports whether there is something new to show. An older leader,
// which Redis has again after it lost data, counts as none.
func (h *history) advance(v view) bool {
	if v.Token < h.token {
		v = view{}
	}
	if v.Token != 0 && v.Token == h.token && v.number < h.number {
		return false // Redis lost the newer value, and gets it again with the next renewal
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

package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// Status is the first byte of a lock script's reply.
type Status byte

const (
	None    Status = 0   // no reply of a lock script
	Granted Status = 'G' // now, or by an earlier copy of the request
	Held    Status = 'H' // by another
	Expired Status = 'V' // the request came too late
	Stale   Status = 'S' // the attempt was over already
)

// Answer is a lock script's reply.
type Answer struct {
	Status  Status
	Now     int64         // Redis time, microseconds
	Token   int64         // Granted: of the grant; Held: the holder's
	Left    time.Duration // Held: of the holder's lease; negative: it has no end
	Holder  string        // Held: owner field
	About   string        // Held: what the holder's session says of itself
	Behind  bool          // Held: another session is next
	Sharded bool          // Held: the release is published by SPUBLISH
}

// ParseAnswer reads 'G NOW TOKEN', 'H NOW PTTL HOLDER TOKEN ABOUT', 'W...' and 'P...' as 'H...', 'V NOW' or
// 'S NOW'. Anything else is no answer: the zero one, and false.
func ParseAnswer(reply string) (a Answer, ok bool) {
	if len(reply) < 3 || reply[1] != ' ' {
		return Answer{}, false
	}
	now, rest, _ := strings.Cut(reply[2:], " ")
	var err error
	if a.Now, err = strconv.ParseInt(now, 10, 64); err != nil {
		return Answer{}, false
	}
	switch a.Status = Status(reply[0]); a.Status {
	case Granted:
		a.Token, ok = Token(rest)
	case Held, 'W', 'P':
		a.Status, a.Behind, a.Sharded = Held, a.Status == 'W', a.Status == 'P'
		left, rest, _ := strings.Cut(rest, " ")
		a.Holder, rest, _ = strings.Cut(rest, " ")
		token, about, _ := strings.Cut(rest, " ")
		var isToken bool
		a.Token, isToken = Token(token)
		a.Left, ok = Remaining(left)
		a.About, ok = about, ok && isToken
	case Expired, Stale:
		ok = true
	}
	if !ok {
		return Answer{}, false
	}
	return a, true
}

// Token reads a token. Lua's numbers are exact that far.
func Token(s string) (token int64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, false
	}
	return int64(n), true
}

// TokenOrZero is a token, or 0 for what is none.
func TokenOrZero(s string) int64 {
	n, _ := Token(s)
	return n
}

// Keys can be given any time to live. Up to MaxLeft it is shown, and a waiter looks again after MaxRest.
const (
	MaxLeft = 100 * 365 * 24 * time.Hour
	MaxRest = 24 * time.Hour
)

// Remaining reads a time to live in milliseconds; it is negative where there is none.
func Remaining(ms string) (left time.Duration, ok bool) {
	n, err := strconv.ParseInt(ms, 10, 64)
	return time.Duration(max(-1, min(n, MaxLeft.Milliseconds()))) * time.Millisecond, err == nil
}

// Number is n as a script argument.
func Number(n int64) string { return strconv.FormatInt(n, 10) }

// Milliseconds is d as a script argument.
func Milliseconds(d time.Duration) string { return Number(d.Milliseconds()) }

// Read is the answer in the outcome of a lock request. The error is the outcome's, or says that the reply is
// none that a lock script gives.
func Read(o wire.Outcome) (Answer, error) {
	if o.Err != nil {
		return Answer{}, o.Err
	}
	r, ok := ParseAnswer(o.Reply)
	if !ok {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	return r, nil
}

// MayHold reports whether the attempt for which g was sent, and answered so, may have been granted what no
// caller wants: by this copy, or by an earlier one. A reply that says nothing may come from a grant, too.
func MayHold(g *Grant, o wire.Outcome, r Answer) bool {
	return g.Late != 0 || o.Err == nil && (r.Status == None || r.Status == Granted)
}

// Locked is the error of an acquisition of the named lock that does not wait, where the answer is Held.
func (a Answer) Locked(name string) *failure.LockedError {
	return &failure.LockedError{Name: name, Holder: a.Holder, About: strings.TrimSpace(a.About), Remaining: max(a.Left, 0)}
}

package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// Status is the first byte of an answer.
type Status byte

const (
	None     Status = 0   // no answer
	Granted  Status = 'G' // now, or by an earlier copy of the request
	GoesOn   Status = 'K' // the grant that the request named
	Queued   Status = 'Q' // or refused, to an attempt that does not wait
	Limited  Status = 'N' // never: there is another number of permits
	Expired  Status = 'V' // the request came too late
	Stale    Status = 'S' // the attempt was over already
	Released Status = 'R'
	Lost     Status = 'L'
)

// Answer is the reply to a request of an attempt, or for its release.
type Answer struct {
	Status    Status
	Now       int64 // Redis time in microseconds; 0 in the answer to a release
	Token     int64 // Granted: of the grant; Queued: the holder's
	MayLinger bool  // Granted: the session may keep it while no goroutine has it
	Limit     int64 // Limited: how many there are

	// Of Queued:
	Left   time.Duration // of the holder's lease, or of the first that ends; negative: it has no end
	Holder string        // owner field; "": there is none
	About  string        // what the holder's session says of itself
	Behind bool          // another session is next, and looks when that lease is over

	// Of Queued, and of Granted to a session that keeps what no goroutine has:
	Deaf    bool // the server knows of nobody that listens for this session
	Sharded bool // the session may be told by SPUBLISH; without a queue, it is

	Served []Served // by this request
	Told   int64    // Released, of a lock without a queue: how many clients got the message
}

// Served is what another attempt was granted.
type Served struct {
	Owner string
	Token int64
	Lease time.Duration
}

// Read is the answer in the outcome of a request. That is 'STATUS NOW' and what follows, or 'R' or 'L'.
// Behind these stands 'OWNER TOKEN LEASE' of each that was served, or how many were told. The scripts say
// more. The error is the outcome's, or says that no script replies so.
func Read(o wire.Outcome) (Answer, error) {
	if o.Err != nil {
		return Answer{}, o.Err
	}
	a, ok := parse(o.Reply)
	if !ok {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	return a, nil
}

func parse(reply string) (a Answer, ok bool) {
	first, about, _ := strings.Cut(reply, "\n")
	status, rest, _ := strings.Cut(first, " ")
	if status == "" {
		return a, false
	}
	a.Status, a.About, ok = Status(status[0]), strings.TrimSpace(about), true
	next := func() (word string) {
		word, rest, _ = strings.Cut(rest, " ")
		return word
	}
	number := func() (n int64) {
		if ok {
			n, ok = Token(next())
		}
		return n
	}
	left := func() (d time.Duration) {
		if ok {
			d, ok = Remaining(next())
		}
		return d
	}
	for _, mark := range status[1:] {
		switch told := a.Status == Queued || a.Status == Granted; {
		case a.Status == Queued && mark == 'B':
			a.Behind = true
		case a.Status == Granted && mark == 'K':
			a.MayLinger = true
		case told && mark == 'D':
			a.Deaf = true
		case told && mark == 'P':
			a.Sharded = true
		default:
			return Answer{}, false
		}
	}
	switch a.Status {
	case Granted:
		a.Now, a.Token = number(), number()
	case Queued:
		a.Now, a.Left = number(), left()
		if a.Holder = next(); a.Holder == "-" {
			a.Holder = ""
		}
		a.Token = number()
	case Limited:
		a.Now, a.Limit = number(), number()
	case GoesOn, Expired, Stale:
		a.Now = number()
	case Released, Lost:
		if rest != "" && !strings.Contains(rest, " ") {
			a.Told = number()
		}
	default:
		ok = false
	}
	for ok && rest != "" {
		a.Served = append(a.Served, Served{next(), number(), left()})
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

// Remaining reads a time to live in milliseconds, as PTTL gives it: -1 is of a key without one. A key that
// was there a moment ago and is gone (-2) has none left. Where a script does not stop the clock, as in
// miniredis, a lease can end between two commands.
func Remaining(ms string) (left time.Duration, ok bool) {
	n, err := strconv.ParseInt(ms, 10, 64)
	if n == -2 {
		n = 0
	}
	return time.Duration(max(-1, min(n, MaxLeft.Milliseconds()))) * time.Millisecond, err == nil
}

// Number is n as a script argument.
func Number(n int64) string { return strconv.FormatInt(n, 10) }

// Milliseconds is d as a script argument.
func Milliseconds(d time.Duration) string { return Number(d.Milliseconds()) }

// Locked is the error of an acquisition that does not wait, where the answer is Queued.
func (a Answer) Locked(name string) *failure.LockedError {
	return &failure.LockedError{Name: name, Holder: a.Holder, About: a.About, Remaining: max(a.Left, 0)}
}

package protocol

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// Status is the first byte of an answer; 0: none.
type Status byte

const (
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
	About  string        // the holder info, see ReadInfo
	Behind bool          // another session is next in the queue, and looks when that lease ends
	Spare  bool          // another session is next, and this one looks SpareDelay later than that

	// Of Queued, and of Granted to a session that keeps what no goroutine has:
	Deaf    bool // the server knows of nobody that listens for this session
	Sharded bool // the session may be told by SPUBLISH; without a queue, it is

	Served []Served // by this request
}

// Served is what another attempt was granted.
type Served struct {
	Owner string
	Token int64
	Lease time.Duration
}

// Read is the answer in the outcome of a request. That is 'STATUS NOW' and what follows, or 'R' or 'L'.
// Behind these stands 'OWNER TOKEN LEASE' of each that was served. The scripts say more. The error is the
// outcome's, or says that no script replies so.
func Read(o wire.Outcome) (Answer, error) {
	first, about, _ := strings.Cut(o.Reply, "\n")
	status, rest, _ := strings.Cut(first, " ")
	switch {
	case o.Err != nil:
		return Answer{}, o.Err
	case status == "":
		return Answer{}, wire.Unexpected(o.Reply)
	}
	marks, ok := status[1:], true
	next := func() (word string) {
		word, rest, _ = strings.Cut(rest, " ")
		return word
	}
	number := func() int64 {
		n, good := Token(next())
		ok = ok && good
		return n
	}
	left := func() time.Duration {
		d, good := Remaining(next())
		ok = ok && good
		return d
	}
	a := Answer{Status: Status(status[0]), About: strings.TrimSpace(about)}
	may := "" // the marks that it may have
	switch a.Status {
	case Granted:
		may = "KDP"
		a.Now, a.Token = number(), number()
	case Queued:
		may = "BSDP"
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
	default:
		ok = false
	}
	has := func(mark string) bool { return strings.Contains(marks, mark) }
	a.Behind, a.Spare, a.MayLinger, a.Deaf, a.Sharded = has("B"), has("S"), has("K"), has("D"), has("P")
	ok = ok && strings.Trim(marks, may) == ""
	for ok && rest != "" {
		a.Served = append(a.Served, Served{next(), number(), left()})
	}
	if !ok {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	return a, nil
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

// MaxLeft is the longest time to live that is shown: keys can be given any.
const MaxLeft = 100 * 365 * 24 * time.Hour

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

// Block is how many tokens a grant reserves: one for each goroutine that the lock
// may be handed to in memory. What was not used is given back with the release.
// Scripts have it as BLOCK.
const Block = 1000

// All is the number of permits of a holder that excludes all others. Scripts have it as ALL, in base.lua. The
// limit of a semaphore is always lower.
const All = 1_000_000_000

// DefaultLease is the lease of a session without WithWatchdogTimeout. docs/choosing.md gives the reasons.
const DefaultLease = 15 * time.Second

// MinLease is the shortest lease: less than network and timers need.
const MinLease = 10 * time.Millisecond

// Retention is for how long the metadata of a free lock are kept at least, and with them the last token. Late
// copies of requests must find them: those of a lock request come within 10 s (Patience).
const Retention = 15 * time.Second

// MaxLease is the longest lease and waiter timeout, ten years. Scripts consider a time that lies decades
// ahead damaged.
const MaxLease = 10 * 365 * 24 * time.Hour

// NoLease is a lease of zero where a zero would mean that none was given.
const NoLease = time.Duration(math.MinInt64)

// MinTime is the shortest time that any other option takes. Redis counts in milliseconds, and no duration
// whose unit was forgotten is as long: an hour in seconds is 3,600 ns.
const MinTime = time.Millisecond

// MinHandover is the least of WithHandover: a shorter time than a request to Redis takes saves none.
const MinHandover = 100 * time.Microsecond

// CheckLease returns an error if the lease d, which the option got, is not from MinLease to MaxLease.
func CheckLease(option string, d time.Duration) error {
	if d == NoLease {
		d = 0
	}
	return CheckDuration(option, d, MinLease, MaxLease)
}

// CheckDuration returns an error if d, which the option got, is not from least to most. The caller must have
// dealt with a 0 that means something else, such as "off". A time below a millisecond that is too short may
// lack its unit, and the error says how to write one.
func CheckDuration(option string, d, least, most time.Duration) error {
	switch {
	case d >= least && d <= most:
		return nil
	case d > most && most == MaxLease:
		return fmt.Errorf("lockline: %s: %v is longer than ten years (%v)", option, d, most)
	case d > most:
		return fmt.Errorf("lockline: %s: %v is longer than %v", option, d, most)
	}
	hint := ""
	switch {
	case d > 0 && d < 1000:
		hint = fmt.Sprintf(": is the unit missing, as in %d*time.Second?", d)
	case d > 0 && d < time.Millisecond:
		hint = fmt.Sprintf(": is the unit missing, as in %d*time.Millisecond?", d)
	}
	return fmt.Errorf("lockline: %s: %v is shorter than %v%s", option, d, least, hint)
}

// Patience is how long after its sending a lock request is still welcome. Not longer than the lease: a copy
// that comes when its grant is over must have expired, too.
func Patience(lease time.Duration) time.Duration {
	return min(lease, max(time.Second, min(lease/3, 10*time.Second)))
}

// FirstLease is the longest lease of a lock that is handed over: FIRST_LEASE in base.lua.
const FirstLease = 2 * time.Second

// SpareDelay is the time by which the second session in the queue looks later than the first: SPARE_DELAY in
// base.lua.
const SpareDelay = 250 * time.Millisecond

// MaxExpired bounds how often in a row a request may come too late.
const MaxExpired = 8

// TooLate is the error of an attempt whose requests come too late all the time.
func TooLate(lease time.Duration) error {
	return fmt.Errorf("requests need longer than %v to reach Redis", Patience(lease))
}

// ErrOver: a copy of the request was granted, and that grant was over before an answer came.
var ErrOver = errors.New("granted, and over (forced, or its lease ran out) before the answer came")

// GrantTime converts the Redis time of a grant to a local time that is not after it. When Redis' clock showed
// redis, the local one showed base or more. How far the two have gone from there to the grant may differ by
// the margin for drift. If redis is 0, it is base.
func GrantTime(at, redis int64, base time.Time) time.Time {
	if redis == 0 {
		return base
	}
	d := time.Duration(at-redis) * time.Microsecond
	t := base.Add(d - d.Abs()/100)
	if now := time.Now(); t.After(now) {
		t = now // a clock that was set
	}
	return t
}

// Valid is for how long after its sending a lease granted by Redis is valid to its holder: two clocks' rates
// differ, and Redis counts in milliseconds. The margin, 1 % and 2 ms, is that of the reference
// implementations of Redlock.
func Valid(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

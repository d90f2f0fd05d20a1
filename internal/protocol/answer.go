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

// Status is the first byte of a reply. 0 means that there is none.
type Status byte

const (
	Granted  Status = 'G' // by this request, or by an earlier copy of it
	GoesOn   Status = 'K' // the grant that the request named was prolonged
	Queued   Status = 'Q' // or refused, if the attempt does not wait
	Limited  Status = 'N' // refused, because the limit is lower or another one
	Expired  Status = 'V' // void, because the request came too late
	Stale    Status = 'S' // the attempt had ended already
	Released Status = 'R'
	Lost     Status = 'L'
)

// Answer is the reply to the request of an attempt, or to its release.
type Answer struct {
	Status    Status
	Now       int64 // Redis time in microseconds; 0 in the reply to a release
	Token     int64 // token of the grant (Granted), or of the holder (Queued)
	MayLinger bool  // the session may keep the grant while no goroutine has it (Granted)
	Limit     int64 // the limit in Redis (Limited)

	// Only in a reply Queued:
	Left   time.Duration // until the first lease of a holder ends; negative: it has no end
	Holder string        // owner field; "" means that there is no holder
	About  string        // the holder info, see ReadInfo
	Behind bool          // another session is next, and sends a request when the lease in Left ends
	Spare  bool          // as Behind, and this session sends a request SpareDelay later

	// Only in a reply Queued, or Granted with MayLinger:
	NoSubscriber bool // the server has no subscriber to the channel of this session
	Sharded      bool // the session may be notified by SPUBLISH

	Served []Served // by this request
}

// Served is a grant to another attempt of the session, by the same request.
type Served struct {
	Owner string
	Token int64
	Lease time.Duration
}

// Read reads the reply in the outcome of a request. The headers of the scripts describe the replies. Read
// returns the error of the outcome, or an error if no script replies like that.
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
	may := "" // the marks that are possible with this status
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
	a.Behind, a.Spare, a.MayLinger = has("B"), has("S"), has("K")
	a.NoSubscriber, a.Sharded = has("D"), has("P")
	ok = ok && strings.Trim(marks, may) == ""
	for ok && rest != "" {
		a.Served = append(a.Served, Served{next(), number(), left()})
	}
	if !ok {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	return a, nil
}

// Token reads a token. It has at most 53 bits, because the numbers of Lua are exact up to that.
func Token(s string) (token int64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, false
	}
	return int64(n), true
}

// TokenOrZero is Token. It returns 0 if s is not a token.
func TokenOrZero(s string) int64 {
	n, _ := Token(s)
	return n
}

// MaxLeft is the longest remaining time that is shown, because anybody can set any time to live.
const MaxLeft = 100 * 365 * 24 * time.Hour

// Remaining reads a time to live in milliseconds, in the form of PTTL. It returns a negative time for -1,
// which means that the key has no time to live. It returns 0 for -2, which means that the key has ended
// since the previous command. That can happen where the clock does not stop during a script, as in
// miniredis.
func Remaining(ms string) (left time.Duration, ok bool) {
	n, err := strconv.ParseInt(ms, 10, 64)
	if n == -2 {
		n = 0
	}
	return time.Duration(max(-1, min(n, MaxLeft.Milliseconds()))) * time.Millisecond, err == nil
}

// Number returns n as a script argument.
func Number(n int64) string { return strconv.FormatInt(n, 10) }

// Milliseconds returns d as a script argument.
func Milliseconds(d time.Duration) string { return Number(d.Milliseconds()) }

// Locked returns the error of a refused attempt, from the reply Queued.
func (a Answer) Locked(name string) *failure.LockedError {
	return &failure.LockedError{Name: name, Holder: a.Holder, About: a.About, Remaining: max(a.Left, 0)}
}

// Block is the number of tokens that a grant reserves, one for each goroutine to which the grant may be
// passed on in memory. The release returns unused ones. Scripts have it as BLOCK.
const Block = 1000

// All is the number of permits of a holder that excludes all others. Scripts have it as ALL, in base.lua. The
// limit of a semaphore is always lower.
const All = 1_000_000_000

// DefaultLease is the lease of a session without WithWatchdogTimeout. docs/choosing.md gives the reasons.
const DefaultLease = 15 * time.Second

// MinLease is the shortest lease. Networks and timers need more time than that.
const MinLease = 10 * time.Millisecond

// Retention is the least time for which Redis keeps the hash of a free lock, and with it the last token and
// the tombstones. A stale copy of a request must find them. A copy of a lock request arrives within 10 s
// (Patience), or is void.
const Retention = 15 * time.Second

// MaxLease is the longest lease and waiter timeout, ten years. Scripts consider a time that lies decades
// ahead damaged.
const MaxLease = 10 * 365 * 24 * time.Hour

// NoLease represents WithLease(0), which must be rejected. A Config.Lease of zero means that the option was
// not given.
const NoLease = time.Duration(math.MinInt64)

// MinTime is the lower bound of most other durations. Redis counts in milliseconds. A duration without a
// unit is shorter than that: for example, an hour in seconds is 3,600 ns.
const MinTime = time.Millisecond

// MinHandover is the lower bound of WithHandover. A request to Redis takes longer, so a shorter time would
// save none.
const MinHandover = 100 * time.Microsecond

// CheckLease returns an error if d is not from MinLease to MaxLease. option is the name of the option for
// the error.
func CheckLease(option string, d time.Duration) error {
	if d == NoLease {
		d = 0
	}
	return CheckDuration(option, d, MinLease, MaxLease)
}

// CheckDuration returns an error if d is not from least to most. option is the name of the option for the
// error. The caller must have handled a 0 that means something else, such as "off". If d is too short and
// below a millisecond, its unit may be missing, and the error shows how to write one.
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

// Patience returns the time after which a lock request is void, counted from before it was sent. It is never
// longer than the lease. So when a grant has ended, all copies of its request are void, too.
func Patience(lease time.Duration) time.Duration {
	return min(lease, max(time.Second, min(lease/3, 10*time.Second)))
}

// FirstLease is the longest first lease of a lock that is handed over. Scripts have it as FIRST_LEASE.
const FirstLease = 2 * time.Second

// SpareDelay is the time by which the second session in the queue sends its request later than the first
// one, when the lease of the holder ends. Scripts have it as SPARE_DELAY.
const SpareDelay = 250 * time.Millisecond

// MaxExpired bounds how often in a row a request of an attempt may be void because it came too late.
const MaxExpired = 8

// TooLate returns the error of an attempt whose requests always come too late.
func TooLate(lease time.Duration) error {
	return fmt.Errorf("requests need longer than %v to reach Redis", Patience(lease))
}

// ErrGrantEnded means that a copy of the request was granted, and that the grant ended before a reply came.
var ErrGrantEnded = errors.New("granted, and over (forced, or its lease ran out) before the answer came")

// GrantTime converts the Redis time of a grant to a local time that is not after it. When the clock of Redis
// showed redis, the local clock showed base or more. Between that time and the grant, the rates of the two
// clocks may differ by 1 %. If redis is 0, GrantTime returns base.
func GrantTime(at, redis int64, base time.Time) time.Time {
	if redis == 0 {
		return base
	}
	d := time.Duration(at-redis) * time.Microsecond
	t := base.Add(d - d.Abs()/100)
	if now := time.Now(); t.After(now) {
		t = now // the clock of Redis was set
	}
	return t
}

// Valid returns for how long a lease is valid to its holder, counted from before its request was sent. It is
// less than the lease, because the rates of two clocks differ, and Redis counts in milliseconds. The margin
// of 1 % and 2 ms is that of the reference implementations of Redlock.
func Valid(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

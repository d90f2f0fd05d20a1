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

// Status is the first byte of a reply. 0 means that there is no reply.
type Status byte

const (
	Granted  Status = 'G' // granted by this request, or by an earlier copy of it
	GoesOn   Status = 'K' // the grant that the request named was prolonged
	Queued   Status = 'Q' // queued, or refused if the attempt does not wait
	Limited  Status = 'N' // refused, because of the limit in Redis
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
	Limit     int64 // limit in Redis, because of which the request was refused (Limited)

	// Only in a reply Queued:
	Left   time.Duration // time until the lease of Holder ends; negative means that the lease does not end
	Holder string        // owner field of the holder whose lease ends first; "" means that there is no holder
	About  string        // the holder info, see ReadInfo
	Behind bool          // after Left, two other sessions send requests, so this session need not send one
	Spare  bool          // after Left, another session sends a request, and this one does so SpareDelay later

	// Only in a reply Queued, or Granted with MayLinger:
	NoSubscriber bool // the server has no subscriber to the channel of this session
	Sharded      bool // the session may be notified by SPUBLISH

	// Served has the grants that other attempts got by the same request. These are attempts of this session.
	// In the reply to the release of a lock without permits, they may also be attempts of other sessions.
	Served []Served
}

// Served is a grant to an attempt that did not send the request.
type Served struct {
	Owner string
	Token int64
	Lease time.Duration
}

// Read reads the reply in the outcome of a request. The headers of the scripts describe the replies. If the
// outcome has an error, Read returns this error. If the reply has none of the formats, Read returns
// wire.Unexpected.
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
	may := "" // the flags that are possible with this status
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

// errMayHaveForced is the error of a forced unlock that cannot report whether it has freed the lock.
var errMayHaveForced = errors.New("it is not known whether it was freed by force: " +
	"a copy of the request had no reply, and a later copy found no such holder")

// Forced reads the reply to a forced unlock, which is the number of holders that have lost the lock.
func Forced(o wire.Outcome) (int, error) {
	n, err := strconv.Atoi(o.Reply)
	switch {
	case err != nil:
		return 0, wire.Unexpected(o.Reply)
	case n == 0 && o.Unanswered != nil:
		return 0, errMayHaveForced
	}
	return n, nil
}

// Token reads a token. A token has at most 53 bits, because larger numbers are not exact in Lua.
func Token(s string) (token int64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, false
	}
	return int64(n), true
}

// TokenOrZero reads a token. It returns 0 if s is not a token.
func TokenOrZero(s string) int64 {
	n, _ := Token(s)
	return n
}

// MaxLeft is the longest remaining time that is shown. Longer times to live are possible, because anybody may
// set the time to live of a key.
const MaxLeft = 100 * 365 * 24 * time.Hour

// Remaining reads a time to live in milliseconds, in the form of PTTL. It returns a negative time for -1,
// which means that the key has no time to live. It returns 0 for -2, which means that the key has expired
// since the previous command. This can happen in miniredis, whose clock does not stop during a script.
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

// Locked returns the error of an attempt that was refused by this reply, whose Status is Queued.
func (a Answer) Locked(name string) *failure.LockedError {
	return &failure.LockedError{Name: name, Holder: a.Holder, About: a.About, Remaining: max(a.Left, 0)}
}

// Block is the number of tokens that an exclusive grant reserves. The first goroutine gets one token, and so
// does each goroutine to which the grant is passed on in memory. The release returns the tokens that were not
// used. Scripts have the number as BLOCK.
const Block = 1000

// All is the number of permits of a holder that excludes all others. Scripts have it as ALL, in base.lua. The
// limit of a semaphore is always lower.
const All = 1_000_000_000

// DefaultLease is the lease of a session without WithWatchdogTimeout. docs/choosing.md gives the reasons.
const DefaultLease = 15 * time.Second

// MinLease is the shortest lease. Networks and timers need more time than that.
const MinLease = 10 * time.Millisecond

// Retention is the least time for which Redis keeps the hash of a free lock, and with it the last token and
// the tombstones. A stale copy of a request for a lock must find the tombstone of its attempt. Such a copy
// arrives within 10 s (Patience), or is void.
const Retention = 15 * time.Second

// MaxLease is the longest lease and waiter timeout, ten years. So a lease does not end after MAX_NUMBER
// (base.lua), the latest Redis time that scripts accept, which is in the year 2255.
const MaxLease = 10 * 365 * 24 * time.Hour

// NoLease represents WithLease(0), which must be rejected. A Config.Lease of zero means that the option was
// not given.
const NoLease = time.Duration(math.MinInt64)

// MinTime is the lower bound of most other durations. Redis counts in milliseconds. A duration whose unit is
// missing is usually shorter than MinTime. For example, the number 3600 means 3,600 ns.
const MinTime = time.Millisecond

// MinHandover is the lower bound of WithHandover. A request to Redis takes longer, so a shorter time would
// save no request.
const MinHandover = 100 * time.Microsecond

// CheckLease returns an error if d is shorter than MinLease or longer than MaxLease. The text of the error
// contains option, the name of the option.
func CheckLease(option string, d time.Duration) error {
	if d == NoLease {
		d = 0
	}
	return CheckDuration(option, d, MinLease, MaxLease)
}

// CheckDuration returns an error if d is shorter than least or longer than most. The text of the error
// contains option, the name of the option. If 0 means "off", the caller must handle 0 itself. If d is too
// short, and also positive and below a millisecond, its unit may be missing. Then the error shows how to
// write a unit.
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

// Patience returns the time after which a request for a lock is void, counted from just before the request
// was sent. Patience is never longer than the lease. So when the lease of a grant has ended, the copies that
// were sent before the grant are void, too.
func Patience(lease time.Duration) time.Duration {
	return min(lease, max(time.Second, min(lease/3, 10*time.Second)))
}

// FirstLease is the longest lease that a holder gets when a lock is handed over to it. It is short because
// the process of the new holder may be stopped. A running process renews the lease long before its end.
// Scripts have it as FIRST_LEASE.
const FirstLease = 2 * time.Second

// SpareDelay is the delay of the second session in the queue. When a holder's lease ends, the first session
// in the queue sends a request, and the second session sends one SpareDelay later. Scripts have it as
// SPARE_DELAY.
const SpareDelay = 250 * time.Millisecond

// MaxExpired is the number of requests in a row that may come too late before a call returns an error.
const MaxExpired = 8

// TooLate returns the error of an attempt whose requests always come too late.
func TooLate(lease time.Duration) error {
	return fmt.Errorf("requests need longer than %v to reach Redis", Patience(lease))
}

// ErrGrantEnded means that an attempt was granted the lock, but the grant ended before a reply came.
var ErrGrantEnded = errors.New("it was granted, but the grant ended (forced, or its lease ran out) " +
	"before the answer came")

// GrantTime converts at, the Redis time of a grant, to a local time that is not after the grant. The clock of
// Redis showed the time redis at the local time base, or later. The rates of the two clocks may differ by up
// to 1 %. If redis is 0, GrantTime returns base.
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

// Valid returns the time for which a holder may rely on a lease, counted from just before the request for the
// lease was sent. This time is shorter than the lease, because the rates of two clocks may differ, and
// because Redis counts in milliseconds. The reference implementations of Redlock have the same margin of 1 %
// and 2 ms.
func Valid(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

package protocol

import (
	"errors"
	"fmt"
	"math"
	"time"
)

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

// CheckLease says what is wrong with a lease, or another time, that the option what was given.
func CheckLease(what string, d time.Duration) error {
	switch {
	case d == NoLease:
		return CheckLease(what, 0)
	case d < MinLease:
		return fmt.Errorf("lockline: %s: %v is shorter than %v", what, d, MinLease)
	case d > MaxLease:
		return fmt.Errorf("lockline: %s: %v is longer than ten years (%v)", what, d, MaxLease)
	}
	return nil
}

// Patience is how long after its sending a lock request is still welcome. Not longer than the lease: a copy
// that comes when its grant is over must have expired, too.
func Patience(lease time.Duration) time.Duration {
	return min(lease, max(time.Second, min(lease/3, 10*time.Second)))
}

// FirstLease is the longest lease of a lock that is handed over: FIRST in line.lua.
const FirstLease = 2 * time.Second

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

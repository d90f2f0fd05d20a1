package wire

import (
	"sync/atomic"
	"time"
)

// Clock estimates a server's clock, in microseconds. Safe for concurrent use.
type Clock struct {
	born time.Time
	// offset is the server's clock less the time since born, as learned from the last reply; 0 while unknown.
	offset atomic.Int64
}

// NewClock knows nothing yet.
func NewClock() *Clock { return &Clock{born: time.Now()} }

// Now is the server's clock at a local time; 0 while nothing is known of it.
func (c *Clock) Now(local time.Time) int64 {
	if off := c.offset.Load(); off != 0 {
		return off + local.Sub(c.born).Microseconds()
	}
	return 0
}

// Heard learns the clock from a reply. It counts from the sending, so
// that an estimate errs to the later side, and a request is not called late before it is.
func (c *Clock) Heard(now int64, sent time.Time) {
	c.offset.Store(now - sent.Sub(c.born).Microseconds())
}

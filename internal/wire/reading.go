package wire

import (
	"context"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// The goroutine that wants a reply sends its request itself, because waking another goroutine takes longer
// than the request. So this goroutine can leave only when go-redis returns. go-redis does not interrupt a
// read when a context ends. If the client has the option ContextTimeoutEnabled, go-redis ends the read no
// later than the deadline that the context had when the request began. In any case, the read ends when the
// client's ReadTimeout has passed.
//
// Each request has a bound, which is the deadline of its context or, without a deadline, a time limit of the
// library. If the request could keep its sender past this bound, another goroutine sends the request, so that
// the caller can leave (NeedsGoroutine). One case remains. If Redis falls silent while a request is in
// flight, canceling the context does not end the request. Then the call returns when go-redis ends the read.

// A reading has the options by which a client ends a read that gets no reply.
type reading struct {
	keepsDeadlines bool          // a read ends no later than the deadline of the request's context
	timeout        time.Duration // time after which a read ends if no deadline has ended it earlier
	speaksTLS      bool          // the client uses TLS; false if the client does not show its options
}

// readingOf reads the options of a client. A client that does not show its options is treated like a client
// of go-redis that was made without options. go-redis replaces missing options by defaults when it makes a
// client. In the options of that client, a ReadTimeout of 0 means that no timeout ends a read, and a negative
// ReadTimeout means that no deadline does either.
func readingOf(c Client) reading {
	r := reading{timeout: 5 * time.Second}
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		o := c.Options()
		r = reading{o.ContextTimeoutEnabled && o.ReadTimeout >= 0, o.ReadTimeout, o.TLSConfig != nil}
	case interface{ Options() *redis.ClusterOptions }:
		o := c.Options()
		r = reading{o.ContextTimeoutEnabled && o.ReadTimeout >= 0, o.ReadTimeout, o.TLSConfig != nil}
	}
	if r.timeout <= 0 {
		r.timeout = math.MaxInt64
	}
	return r
}

// slow is the time without a reply after which a server with requests in flight counts as silent.
// NeedsGoroutine uses slow, too. A caller may send a request itself if the client's ReadTimeout ends the read
// no later than this time after the caller's bound.
const slow = 100 * time.Millisecond

// Silent reports whether the server of a key is silent. For a Cluster, Silent may block while go-redis loads
// the map of the Cluster. A server is silent
//   - until its first reply;
//   - after a request has failed without a reply, until the next reply. A canceled request does not count;
//   - while requests are in flight and no reply has come for 100 ms (slow).
func (l *Link) Silent(ctx context.Context, key string) bool {
	s, _ := l.server(ctx, key)
	return !s.answers.Load() || s.isSilent()
}

// NeedsGoroutine reports whether a request could block its sender past the bound of the call. The bound is
// the deadline of ctx or, if ctx has no deadline, the time atMost from now. If the server is silent,
// NeedsGoroutine also returns true. Such a request may get no reply, and go-redis would not end the request
// if ctx was canceled before the bound.
//
// NeedsGoroutine does not consider the wait for a connection of an exhausted pool. This wait ends at the
// deadline of ctx or after the client's PoolTimeout.
func (l *Link) NeedsGoroutine(ctx context.Context, key string, atMost time.Duration) bool {
	if l.Silent(ctx, key) {
		return true
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		if l.reading.keepsDeadlines {
			return false
		}
		atMost = time.Until(deadline)
	}
	return l.reading.timeout-slow > atMost // atMost+slow could overflow
}

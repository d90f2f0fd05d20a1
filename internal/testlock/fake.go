package testlock

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// bubbles are the tests that run in fake time.
var bubbles sync.Map

// InFakeTime runs a test in a synctest bubble of its own: hours cost nothing, and instants are exact.
func InFakeTime(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, true)
		t.Cleanup(func() { bubbles.Delete(t) })
		test(t)
	})
}

// Keep has hold live until the test ends. In fake time the library must find no forgotten Hold: it would unlock it
// from outside of the bubble, which ends the program.
func Keep(t testing.TB, hold *rlock.Hold) { t.Cleanup(func() { runtime.KeepAlive(hold) }) }

func keepInFakeTime(t testing.TB, hold *rlock.Hold) {
	if _, fake := bubbles.Load(t); fake {
		Keep(t, hold)
	}
}

// Wire is an in-memory server for fake time, whose network can be slow or cut.
type Wire struct {
	*miniredis.Miniredis
	Client *redis.Client
	Down   atomic.Bool  // silent: requests are read and never answered
	Delay  atomic.Int64 // of each request and each reply, in nanoseconds
	Wrote  atomic.Int64 // writes of clients
}

// NewWire starts a server and a client of it. Both end with the test, which must be in fake time.
func NewWire(t testing.TB) *Wire {
	w := &Wire{Miniredis: miniredis.NewMiniRedis()}
	w.ClockTTL(true)
	t.Cleanup(w.Miniredis.Close)
	w.Client = redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := w.Dial()
			return wireConn{c, w}, err
		},
		Addr:        "127.0.0.1:1", // never dialed, but looked up
		ReadTimeout: 500 * time.Millisecond,
		PoolTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = w.Client.Close() })
	return w
}

// Simulated runs a test in fake time, with a server.
func Simulated(t *testing.T, test func(t *testing.T, w *Wire)) {
	InFakeTime(t, func(t *testing.T) { test(t, NewWire(t)) })
}

// wireConn swallows what is written while the wire is down.
type wireConn struct {
	net.Conn
	w *Wire
}

func (c wireConn) Write(p []byte) (int, error) {
	c.w.Wrote.Add(1)
	time.Sleep(time.Duration(c.w.Delay.Load()))
	if c.w.Down.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(time.Duration(c.w.Delay.Load()))
	return n, err
}

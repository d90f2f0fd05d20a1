package testlock

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/memserver"
	"github.com/lockline/lockline/rlock"
)

// bubbles has a *kept for each test that runs in fake time.
var bubbles sync.Map

// InFakeTime runs a test in a synctest bubble of its own. In the bubble, an hour of sleep takes no real time,
// and times are exact.
func InFakeTime(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, &kept{})
		t.Cleanup(func() { bubbles.Delete(t) }) // runs after all other cleanups, which close the sessions
		test(t)
	})
}

// A kept has the holds that must stay reachable until the test ends.
type kept struct {
	mu    sync.Mutex // guards holds
	holds []*rlock.Hold
}

// Keep keeps hold reachable until a test in fake time and its sessions have ended. In other tests, Keep does
// nothing. If the garbage collector found a forgotten Hold, the library would unlock the Hold from outside
// the bubble, which ends the program.
func Keep(t testing.TB, hold *rlock.Hold) {
	if k, fake := bubbles.Load(t); fake {
		k := k.(*kept)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.holds = append(k.holds, hold)
	}
}

// A Wire is a server in memory for fake time. Its clients reach the server through a proxy.
type Wire struct {
	*memserver.Redis
	Net    *faultproxy.Proxy
	Client *redis.Client
}

// NewWire starts a server and a client of the server. The test must be in fake time. The server and the
// client end with the test.
func NewWire(t testing.TB) *Wire {
	// A client that was closed while its server was down still dials for a while.
	t.Cleanup(func() { time.Sleep(5 * time.Second) })
	w := &Wire{Redis: memserver.New(t)}
	w.Net = w.Proxy()
	w.Client = w.Net.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.PoolTimeout = 500*time.Millisecond, 100*time.Millisecond
	})
	return w
}

// Down(true) makes the server silent. Requests are lost, but connections stay open. Down(false) makes the
// server answer again.
func (w *Wire) Down(down bool) { w.Net.BlackHole(down, false) }

// Simulated runs a test in fake time, with a server.
func Simulated(t *testing.T, test func(t *testing.T, w *Wire)) {
	InFakeTime(t, func(t *testing.T) { test(t, NewWire(t)) })
}

// Silence lets s send a request that gets no reply. So s considers the server silent until s gets another
// reply. net must be the proxy that s uses. Silence is for tests in fake time, and takes 200 ms. During this
// time, other calls of scripts through net get no reply either.
func Silence(t testing.TB, s *rlock.Session, net *faultproxy.Proxy) {
	t.Helper()
	net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Is("EVALSHA") {
			return faultproxy.Swallow
		}
		return faultproxy.Pass
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = rlock.New(s, "silence").Inspect(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(200 * time.Millisecond)
	net.OnRequest(nil)
}

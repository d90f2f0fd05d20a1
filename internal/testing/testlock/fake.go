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

// bubbles are the tests that run in fake time, and what each keeps.
var bubbles sync.Map

// InFakeTime runs a test in a synctest bubble of its own: hours cost nothing, and instants are exact.
func InFakeTime(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, &kept{})
		t.Cleanup(func() { bubbles.Delete(t) }) // the last: sessions are closed by then
		test(t)
	})
}

type kept struct {
	mu    sync.Mutex // guards holds
	holds []*rlock.Hold
}

// Keep has hold live until a test in fake time and its sessions have ended. There the library must find no
// forgotten Hold: it would unlock it from outside of the bubble, which ends the program.
func Keep(t testing.TB, hold *rlock.Hold) {
	if k, fake := bubbles.Load(t); fake {
		k := k.(*kept)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.holds = append(k.holds, hold)
	}
}

// Wire is an in-memory server for fake time, with a proxy before it that its clients go through.
type Wire struct {
	*memserver.Redis
	Net    *faultproxy.Proxy
	Client *redis.Client
}

// NewWire starts a server and a client of it. Both end with the test, which must be in fake time.
func NewWire(t testing.TB) *Wire {
	// A client that was closed while its server was down dials on.
	t.Cleanup(func() { time.Sleep(5 * time.Second) })
	w := &Wire{Redis: memserver.New(t)}
	w.Net = w.Proxy()
	w.Client = w.Net.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.PoolTimeout = 500*time.Millisecond, 100*time.Millisecond
	})
	return w
}

// Down(true) makes it silent: requests are lost, and connections stay. Down(false) ends that.
func (w *Wire) Down(down bool) { w.Net.BlackHole(down, false) }

// Simulated runs a test in fake time, with a server.
func Simulated(t *testing.T, test func(t *testing.T, w *Wire)) {
	InFakeTime(t, func(t *testing.T) { test(t, NewWire(t)) })
}

// Silence makes a server silent to a session, until that has another answer: the session has a request under
// way that is not answered. It is for fake time, in which requests through the proxy fail meanwhile.
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

package rlock_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
)

const (
	lockKey  = "lockline:r:{x}"
	queueKey = lockKey + ":q"
)

// isScript reports whether a request runs one of these scripts.
func isScript(r *faultproxy.Request, names ...string) bool {
	return slices.Contains(names, testlock.Script(r.Script()))
}

// stands reports whether a request may add its attempt to the queue.
func stands(r *faultproxy.Request) bool {
	const liveness = 12
	return isScript(r, "acquire") && r.Args[liveness] != "0"
}

// sequence returns the names of the requests since the last Reset. The name of a request is its script or its
// command.
func sequence(p *faultproxy.Proxy) string {
	var names []string
	for _, r := range p.Requests() {
		name := testlock.Script(r.Script())
		if name == "" {
			name = strings.ToUpper(r.Args[0])
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// wantSequence fails the test unless sequence returns want, and then calls Reset.
func wantSequence(t *testing.T, p *faultproxy.Proxy, what, want string) {
	t.Helper()
	if got := sequence(p); got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
	p.Reset()
}

// onFirst applies action to the first request for which meant returns true, and passes all other requests.
func onFirst(
	action faultproxy.Action, meant func(*faultproxy.Request) bool,
) func(*faultproxy.Request) faultproxy.Action {
	var once sync.Once
	return func(r *faultproxy.Request) faultproxy.Action {
		a := faultproxy.Pass
		if meant(r) {
			once.Do(func() { a = action })
		}
		return a
	}
}

// beside returns a client that reaches the server by another network.
func beside(t testing.TB, w *testlock.Wire) *redis.Client {
	return faultproxy.InMemory(t, w.Dial).Client(t)
}

// inQueue returns the number of attempts in the queue of lock x.
func inQueue(w *testlock.Wire) int {
	members, _ := w.ZMembers(queueKey)
	return len(members)
}

// seen returns the number of waiters of which the server knows that their sessions had a subscription.
func seen(rdb *redis.Client) (n int) {
	for _, entry := range rdb.HVals(bg, lockKey+":w").Val() {
		if strings.Contains(entry, "+ ") {
			n++
		}
	}
	return n
}

// settle lets 100 ms of fake time pass, and waits until all goroutines are blocked.
func settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

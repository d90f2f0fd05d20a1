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

// isScript: the request runs one of these.
func isScript(r *faultproxy.Request, names ...string) bool {
	return slices.Contains(names, testlock.Script(r.Script()))
}

// stands: a request for the lock that takes a place in the queue.
func stands(r *faultproxy.Request) bool {
	const liveness = 12
	return isScript(r, "acquire") && r.Args[liveness] != "0"
}

// sequence names the requests since the last Reset, each by its script or its command.
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

// wantSequence fails the test unless these were the requests since the last Reset, and resets.
func wantSequence(t *testing.T, p *faultproxy.Proxy, what, want string) {
	t.Helper()
	if got := sequence(p); got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
	p.Reset()
}

// onFirst does action with the first request that is meant, and passes all others.
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

// beside is a client that reaches the server by a network of its own.
func beside(t testing.TB, w *testlock.Wire) *redis.Client {
	return faultproxy.InMemory(t, w.Dial).Client(t)
}

// inQueue is how many sessions stand in the queue for lock x.
func inQueue(w *testlock.Wire) int {
	members, _ := w.ZMembers(queueKey)
	return len(members)
}

// seen is how many of those in the queue the server has seen listen.
func seen(rdb *redis.Client) (n int) {
	for _, entry := range rdb.HVals(bg, lockKey+":w").Val() {
		if strings.Contains(entry, "+ ") {
			n++
		}
	}
	return n
}

// settle lets a moment of fake time pass, in which all that can happen does.
func settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

package rlock_test

import (
	"os"
	"path"
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
	lockKey   = "lockline:r:{x}"
	memoryKey = "lockline:r:{x}:t"
	queueKey  = lockKey + ":q"
)

// scripts names the library's scripts by what a request carries of them.
var scripts = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for _, file := range []string{
		"../internal/protocol/keep.lua",
		"../internal/queue/force.lua", "../internal/queue/inspect.lua", "../internal/queue/lock.lua",
		"../internal/queue/release.lua", "../internal/queue/heartbeat.lua",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		m[string(text)], m[redis.NewScript(string(text)).Hash()] = path.Base(file), path.Base(file)
	}
	return m
})

// isScript: the request runs one of these, which are named as their files.
func isScript(r *faultproxy.Request, files ...string) bool {
	return slices.Contains(files, scripts()[r.Script()])
}

// stands: a request for the lock that takes a place in the queue.
func stands(r *faultproxy.Request) bool {
	const liveness = 13
	return isScript(r, "lock.lua") && r.Args[liveness] != "0"
}

// sequence names the requests since the last Reset, each by its script's file or its command.
func sequence(p *faultproxy.Proxy) string {
	var names []string
	for _, r := range p.Requests() {
		name := scripts()[r.Script()]
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
func onFirst(action faultproxy.Action, meant func(*faultproxy.Request) bool) func(*faultproxy.Request) faultproxy.Action {
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
	for _, entry := range rdb.HVals(bg, lockKey+":d").Val() {
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

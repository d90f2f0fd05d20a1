package multilock_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// The keys of the RedLock "x", and those of its line.
const (
	redKey    = "lockline:q:{x}"
	turnKey   = "lockline:t:{x}"
	turnQueue = turnKey + ":q"
)

// servers are the independent servers of a RedLock, in fake time.
type servers []*testlock.Wire

func newServers(t testing.TB, n int) (r servers) {
	for range n {
		r = append(r, testlock.NewWire(t))
	}
	return r
}

// withServers runs a test in fake time with n servers.
func withServers(t *testing.T, n int, test func(t *testing.T, r servers)) {
	testlock.InFakeTime(t, func(t *testing.T) { test(t, newServers(t, n)) })
}

// process is the sessions of a process of its own, with connections of its own to all servers.
func (r servers) process(t testing.TB, options ...rlock.SessionOption) (all []*rlock.Session) {
	t.Helper()
	idle := func(o *redis.Options) { o.ConnMaxIdleTime = time.Second } // or it would try broken ones first
	return r.clients(t, idle, options...)
}

// clients are the sessions of a process whose clients are set up so.
func (r servers) clients(
	t testing.TB, setUp func(*redis.Options), options ...rlock.SessionOption,
) (all []*rlock.Session) {
	t.Helper()
	for _, w := range r {
		rdb := w.Net.Client(t, setUp)
		all = append(all, testlock.NewSession(t, rdb, options...))
	}
	return all
}

// redLock is the RedLock "x" in a process of its own.
func (r servers) redLock(t testing.TB, options ...rlock.SessionOption) *multilock.RedLock {
	return testlock.RedLock("x", r.process(t, options...)...)
}

// warm is a redLock to which all servers' clocks and scripts are known.
func (r servers) warm(t testing.TB, options ...rlock.SessionOption) *multilock.RedLock {
	m := testlock.Warm(t, r.redLock(t, options...))
	synctest.Wait()
	return m
}

// holders are the sessions that have x, by server, once nothing is under way; "" where it is free.
func (r servers) holders() (all []string) {
	synctest.Wait()
	for _, w := range r {
		owner := "-"
		if leaseOf(w, redKey) > 0 {
			owner, _, _ = strings.Cut(w.HGet(redKey, "owner"), ":")
		}
		all = append(all, owner[:len(owner)-1]) // the last letter tells the servers apart
	}
	return all
}

// held counts the servers where x is taken.
func (r servers) held() int {
	return len(slices.DeleteFunc(r.holders(), func(who string) bool { return who == "" }))
}

// unanimous: one holder has x on all servers.
func (r servers) unanimous() bool {
	all := r.holders()
	return all[0] != "" && len(slices.Compact(all)) == 1
}

// leaseOf returns for how long a server keeps a lock from others; 0 if nobody has it.
func leaseOf(w *testlock.Wire, key string) time.Duration {
	ends, err := strconv.ParseInt(w.HGet(key, "ends"), 10, 64)
	if err != nil || w.HGet(key, "owner") == "" {
		return 0
	}
	return max(0, time.Until(time.UnixMicro(ends)))
}

// occupied has another holder take x on a server.
func occupied(w *testlock.Wire, owner string, lease time.Duration) {
	ends := strconv.FormatInt(time.Now().Add(lease).UnixMicro(), 10)
	w.HSet(redKey, "owner", owner, "ends", ends, "token", "7", "count", "1", "change", "0",
		"info", "12@there other", "lives", ends)
	w.SetTTL(redKey, lease)
}

// remembers has a server take a token for the last one that was released there.
func remembers(w *testlock.Wire, token int64) {
	w.HSet(redKey, "token", strconv.FormatInt(token, 10), "released", strconv.FormatInt(token, 10),
		"lives", strconv.FormatInt(time.Now().UnixMicro(), 10))
}

// stored returns the higher one of the fields `token` and `floor` of lock x on a server, which grants only
// higher tokens.
func stored(w *testlock.Wire) (token int64) {
	for _, field := range []string{"token", "floor"} {
		n, _ := strconv.ParseInt(w.HGet(redKey, field), 10, 64)
		token = max(token, n)
	}
	return token
}

// store counts the servers that will grant no token up to this one any more.
func (r servers) store(token int64) (n int) {
	synctest.Wait()
	for _, w := range r {
		if stored(w) >= token {
			n++
		}
	}
	return n
}

// reset forgets the requests that were counted.
func (r servers) reset() {
	synctest.Wait()
	for _, w := range r {
		w.Net.Reset()
	}
}

// count counts the requests of x for some scripts, or all requests for any, once nothing is under way.
func (r servers) count(scripts ...string) (n int) {
	synctest.Wait()
	for _, w := range r {
		for _, q := range w.Net.Requests() {
			of := func(s string) bool { return s == testlock.Script(q.Script()) && q.Args[3] == redKey }
			if q.Script() != "" && (len(scripts) == 0 || slices.ContainsFunc(scripts, of)) {
				n++
			}
		}
	}
	return n
}

// lineAt is the number of the server where waiters stand in line, if they do.
func (r servers) lineAt() int {
	synctest.Wait()
	return slices.IndexFunc(r, func(w *testlock.Wire) bool { return leaseOf(w, turnKey) > 0 })
}

// inLine is how many stand in line behind the first, on any server.
func (r servers) inLine(t testing.TB) (n int) {
	t.Helper()
	synctest.Wait()
	for _, w := range r {
		if w.Exists(turnQueue) {
			all, err := w.ZMembers(turnQueue)
			testlock.Must(t, err)
			n += len(all)
		}
	}
	return n
}

// onlyTokens fails the test if a server has anything but memories of tokens.
func (r servers) onlyTokens(t testing.TB) {
	t.Helper()
	for _, w := range r {
		testlock.OnlyTokens(t, w.Client)
	}
}

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

// The keys of the RedLock "x" and of its line, on each server.
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

// process returns the sessions of a new process, one for each server. They have their own connections.
func (r servers) process(t testing.TB, options ...rlock.SessionOption) (all []*rlock.Session) {
	t.Helper()
	idle := func(o *redis.Options) { o.ConnMaxIdleTime = time.Second } // no broken connections
	return r.clients(t, idle, options...)
}

// clients is like process, but setUp configures the clients.
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

// redLock returns the RedLock "x" of a new process.
func (r servers) redLock(t testing.TB, options ...rlock.SessionOption) *multilock.RedLock {
	return testlock.RedLock("x", r.process(t, options...)...)
}

// warm is like redLock, but the RedLock has already been used, so all servers have the scripts, and their
// clocks are known.
func (r servers) warm(t testing.TB, options ...rlock.SessionOption) *multilock.RedLock {
	m := testlock.Warm(t, r.redLock(t, options...))
	synctest.Wait()
	return m
}

// holders waits until no request is in flight. For each server, it returns the beginning of the holder's
// session id, which is the same for all servers, or "" if x is free there.
func (r servers) holders() (all []string) {
	synctest.Wait()
	for _, w := range r {
		owner := "-"
		if leaseOf(w, redKey) > 0 {
			owner, _, _ = strings.Cut(w.HGet(redKey, "owner"), ":")
		}
		all = append(all, owner[:len(owner)-1]) // the last letter differs
	}
	return all
}

// held returns the number of servers on which x is taken.
func (r servers) held() int {
	return len(slices.DeleteFunc(r.holders(), func(who string) bool { return who == "" }))
}

// unanimous reports whether one process holds x on all servers.
func (r servers) unanimous() bool {
	all := r.holders()
	return all[0] != "" && len(slices.Compact(all)) == 1
}

// leaseOf returns the time that is left of the holder's lease of a lock, or 0 if the lock is free.
func leaseOf(w *testlock.Wire, key string) time.Duration {
	ends, err := strconv.ParseInt(w.HGet(key, "ends"), 10, 64)
	if err != nil || w.HGet(key, "owner") == "" {
		return 0
	}
	return max(0, time.Until(time.UnixMicro(ends)))
}

// occupied makes a server grant x to another holder.
func occupied(w *testlock.Wire, owner string, lease time.Duration) {
	ends := strconv.FormatInt(time.Now().Add(lease).UnixMicro(), 10)
	w.HSet(redKey, "owner", owner, "ends", ends, "token", "7", "count", "1", "change", "0",
		"info", "12@there other", "lives", ends)
	w.SetTTL(redKey, lease)
}

// remembers makes a server believe that the last holder of x had this token.
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

// store returns the number of servers that have stored this token or a higher one.
func (r servers) store(token int64) (n int) {
	synctest.Wait()
	for _, w := range r {
		if stored(w) >= token {
			n++
		}
	}
	return n
}

// reset sets the numbers that count returns to 0.
func (r servers) reset() {
	synctest.Wait()
	for _, w := range r {
		w.Net.Reset()
	}
}

// count waits until no request is in flight, and returns the number of requests to run these scripts for x.
// Without scripts, it counts all requests to run a script.
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

// lineAt returns the index of the server with the line of x, or -1 if there is no line.
func (r servers) lineAt() int {
	synctest.Wait()
	return slices.IndexFunc(r, func(w *testlock.Wire) bool { return leaseOf(w, turnKey) > 0 })
}

// inLine returns the number of waiters in the line of x, without its head.
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

// onlyTokens fails the test if a server has keys other than hashes of free locks, which remember tokens.
func (r servers) onlyTokens(t testing.TB) {
	t.Helper()
	for _, w := range r {
		testlock.OnlyTokens(t, w.Client)
	}
}

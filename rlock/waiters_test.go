package rlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
)

// A rawLock is a lock whose scripts the test runs itself. No session has a subscription.
type rawLock struct {
	*testing.T
	rdb  *redis.Client
	keys []string
}

func newRawLock(t *testing.T, rdb *redis.Client) rawLock {
	key := testlock.Prefix(rdb) + ":r:{x}"
	return rawLock{t, rdb, []string{key, key + ":q", key + ":w"}}
}

func (w rawLock) run(name string, argv ...any) string {
	w.Helper()
	reply, err := redis.NewScript(script.Text(name)).Run(bg, w.rdb, w.keys, argv...).Text()
	testlock.Must(w.T, err)
	return reply
}

// acquire runs lock/acquire, and returns the first letter of the reply.
func (w rawLock) acquire(owner string) string {
	w.Helper()
	return w.run("lock/acquire", owner, 1, int64(1)<<52, 30000, "info", 15000, 30000,
		testlock.Prefix(w.rdb)+":s:", "nonce", 1)[:1]
}

// ends makes the lease of the holder end.
func (w rawLock) ends() {
	testlock.Must(w.T, w.rdb.HSet(bg, w.keys[0], "ends", 1).Err())
}

// A waiter without a subscription can get the lock with its own request, because the reply tells it.
func TestTheFirstInTheQueueThatAsksGetsTheFreeLockThoughItDoesNotListen(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		if got := fmt.Sprint(w.acquire("a:1"), w.acquire("b:1"), w.acquire("c:1")); got != "GQQ" {
			t.Fatal(got)
		}
		w.ends()
		if got := w.acquire("b:1"); got != "G" {
			t.Errorf("the first in the queue gets %s", got)
		}
	})
}

// A waiter whose entry somebody has deleted keeps its place with its next request, and leaves the queue when
// it gets the lock.
func TestAWaiterWithoutAnEntryLeavesTheQueueWhenItGetsTheLock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		if got := fmt.Sprint(w.acquire("a:1"), w.acquire("b:1")); got != "GQ" {
			t.Fatal(got)
		}
		testlock.Must(t, w.rdb.Del(bg, w.keys[2]).Err())
		w.ends()
		if got := w.acquire("b:1"); got != "G" {
			t.Errorf("it gets %s", got)
		}
		if n := w.rdb.ZCard(bg, w.keys[1]).Val(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// A release that arrives after the end of the lease has not ended the hold, so its reply is L.
func TestAReleaseOfALeaseThatHasEndedSaysThatItIsLost(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		if got := w.acquire("a:1"); got != "G" {
			t.Fatal(got)
		}
		token := w.rdb.HGet(bg, w.keys[0], "token").Val()
		w.ends()
		for range 2 {
			got := w.run("lock/release", "a:1", token, testlock.Prefix(w.rdb)+":s:", 15000, 0, 0)
			if !strings.HasPrefix(got, "L") {
				t.Errorf("it gets %s", got)
			}
		}
	})
}

// request runs lock/acquire for an attempt whose session is notified by PUBLISH, and returns the first word
// of the reply.
func (w rawLock) request(owner string, more ...any) string {
	w.Helper()
	argv := append([]any{owner, 1, int64(1) << 52, 30000, "info", 15000, 30000,
		testlock.Prefix(w.rdb) + ":s:", "nonce", 1}, more...)
	return strings.Fields(w.run("lock/acquire", argv...))[0]
}

// release runs lock/release, and returns the first letter of the reply. late is ARGV[5].
func (w rawLock) release(owner, token string, late any) string {
	w.Helper()
	return w.run("lock/release", owner, token, testlock.Prefix(w.rdb)+":s:", 15000, late, 0)[:1]
}

func (w rawLock) token() string { return w.rdb.HGet(bg, w.keys[0], "token").Val() }

// The mark that a waiter had a subscription must stay at any place in the queue. Otherwise a session whose
// connection breaks could not be skipped.
func TestAWaiterFarBackInTheQueueStaysMarkedAsOneThatListened(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		w.request("a:1")
		w.request("b:1")
		w.request("c:1")
		listens := w.rdb.Subscribe(bg, testlock.Prefix(w.rdb)+":s:d")
		_, err := listens.Receive(bg)
		testlock.Must(t, err)
		seen := func() bool {
			w.request("d:1")
			return strings.Contains(w.rdb.HGet(bg, w.keys[2], "d:1").Val(), " nonce+ ")
		}
		if !seen() {
			t.Fatal("it listens, and its entry does not say so")
		}
		testlock.Must(t, listens.Close())
		settle()
		if got := w.request("d:1"); got != "QBD" {
			t.Errorf("the reply begins with %s", got)
		}
		if !seen() {
			t.Error("it does not listen any more, and its entry does not say that it did")
		}
	})
}

// A session may keep an idle lock only while no other session waits.
func TestALockForWhichOthersWaitIsNotKept(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		listens := w.rdb.Subscribe(bg, testlock.Prefix(w.rdb)+":s:b")
		defer listens.Close()
		_, err := listens.Receive(bg)
		testlock.Must(t, err)
		w.request("a:1")
		w.request("b:1", 0)
		w.request("c:1", 0)
		w.ends()
		if got := w.request("b:1", 0); got != "G" {
			t.Errorf("the first in the queue gets %s", got)
		}
		w.release("c:1", "", 0)
		w.ends()
		if got := w.request("b:2", 0); got != "GK" {
			t.Errorf("nobody waits, and it gets %s", got)
		}
	})
}

// Somebody deletes the hash while a:1 holds the lock. The request that makes the hash again does not know the
// token.
func TestAHoldWhoseHashWasDeletedIsLost(t *testing.T) {
	for name, again := range map[string]func(w rawLock){
		"the next grant": func(rawLock) {},
		"a tombstone":    func(w rawLock) { w.release("x:1", "", time.Now().Add(time.Second).UnixMicro()) },
		"a waiter":       func(w rawLock) { w.release("b:1", "", 0) },
	} {
		simulated := func(t *testing.T, s *testlock.Wire) {
			w := newRawLock(t, s.Client)
			w.request("a:1")
			token := w.token()
			time.Sleep(time.Millisecond) // so that the next token is higher
			if name == "a waiter" {
				w.request("b:1")
				w.request("c:1")
				// The connection of c broke.
				e := strings.Replace(w.rdb.HGet(bg, w.keys[2], "c:1").Val(), " nonce ", " nonce+ ", 1)
				testlock.Must(t, w.rdb.HSet(bg, w.keys[2], "c:1", e).Err())
			}
			testlock.Must(t, w.rdb.Del(bg, w.keys[0]).Err())
			again(w)
			if got := w.request("d:1"); got != "G" {
				t.Fatalf("another gets %s", got)
			}
			if got := w.release("d:1", w.token(), 0); got != "R" {
				t.Errorf("it releases it and gets %s", got)
			}
			if got := w.release("a:1", token, 0); got != "L" {
				t.Errorf("the former holder gets %s", got)
			}
		}
		t.Run(name, func(t *testing.T) { testlock.Simulated(t, simulated) })
	}
}

// A script that fails must not have changed anything.
func TestARequestThatCannotReadTheQueueChangesNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		w.request("a:1")
		w.request("b:1")
		channels := testlock.Prefix(w.rdb) + ":s:"
		testlock.Must(t, w.rdb.HSet(bg, w.keys[0], "floor", 8e15).Err())
		testlock.Must(t, w.rdb.Set(bg, w.keys[1], "odd", 0).Err())
		for name, argv := range map[string][]any{
			"release": {"a:1", w.token(), channels, 15000, 0, 0},
			"force":   {channels, 15000, ""},
		} {
			before := s.Dump()
			err := redis.NewScript(script.Text("lock/"+name)).Run(bg, w.rdb, w.keys, argv...).Err()
			if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: %v", name, err)
			}
			if after := s.Dump(); after != before {
				t.Errorf("%s: the data became\n%s\nfrom\n%s", name, after, before)
			}
		}
	})
}

// A session can have very many attempts, and each of them sends a heartbeat every few seconds. So a heartbeat
// must be cheap.
func TestAHeartbeatReadsFewEntriesHoweverManyAttemptsOfItsSessionWait(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		w.request("a:1")
		for i := range 100 {
			w.request(fmt.Sprint("b:", i))
		}
		const counts = `local original, count = redis, 0
local redis = setmetatable({ call = function(...)
  count = count + (select(2, ...) == KEYS[3] and select('#', ...) - 2 or 0)
  if count > 10 then
    error('it reads more than 10 entries')
  end
  return original.call(...)
end }, { __index = original })
`
		for _, owner := range []string{"b:0", "b:50"} {
			_, err := redis.NewScript(counts+script.Text("lock/acquire")).Run(bg, w.rdb, w.keys, owner, 1,
				int64(1)<<52, 30000, "info", 15000, 30000, testlock.Prefix(w.rdb)+":s:", "nonce", 1).Text()
			testlock.Must(t, err)
		}
	})
}

// A server logs each PUBSUB of a user who has no right to it. So a script must not call PUBSUB if nobody
// waits.
func TestAFreeLockIsGrantedWithoutAskingWhoListens(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, s *testlock.Wire) {
		w := newRawLock(t, s.Client)
		const refuses = `local original = redis
local redis = setmetatable({ pcall = function(command, ...)
  if command == 'PUBSUB' then
    error('it asks who listens')
  end
  return original.pcall(command, ...)
end }, { __index = original })
`
		reply, err := redis.NewScript(refuses+script.Text("lock/acquire")).Run(bg, w.rdb, w.keys, "a:1", 1,
			int64(1)<<52, 30000, "info", 15000, 30000, testlock.Prefix(w.rdb)+":s:", "nonce", 1).Text()
		if err != nil || !strings.HasPrefix(reply, "G ") {
			t.Errorf("%q, %v", reply, err)
		}
	})
}

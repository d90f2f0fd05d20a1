package fairlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

const (
	lockKey    = "lockline:f:{x}"
	queueKey   = "lockline:f:{x}:q"
	waitersKey = "lockline:f:{x}:w"
)

var (
	bg = context.Background()

	// With this waiter timeout, heartbeats come so rarely that none is sent during a test.
	longLiveness = rlock.WithWaiterTimeout(3 * time.Hour)

	// queuedKinds has the kinds with a queue, by the letter in their keys.
	queuedKinds = map[string]testlock.Maker{"f": fairlock.New, "r": rlock.New}
)

func TestMain(m *testing.M) { testlock.Main(m, manySessions) }

func everyQueue(t *testing.T, test func(t *testing.T, letter string, newMutex testlock.Maker)) {
	for letter, newMutex := range queuedKinds {
		t.Run(letter, func(t *testing.T) { test(t, letter, newMutex) })
	}
}

// marked returns the number of waiters for lock x of which the server knows that their sessions had a
// subscription.
func marked(rdb redis.Cmdable, letter string) (n int64) {
	for _, entry := range rdb.HVals(bg, testlock.Prefix(rdb)+":"+letter+":{x}:w").Val() {
		if words := strings.Fields(entry); strings.HasSuffix(words[3], "+") {
			n++
		}
	}
	return n
}

// manySessions is the main function of a process that waits for lock x until it is killed. args has the
// letter of the lock's kind, the prefix, the address of the server, the number of sessions, and the number of
// goroutines of each session. The addresses of a Cluster are separated by commas.
func manySessions(args string) {
	var letter, prefix, addrs string
	var sessions, each int
	if _, err := fmt.Sscan(args, &letter, &prefix, &addrs, &sessions, &each); err != nil {
		panic(err)
	}
	var rdb rlock.Client = redis.NewClient(&redis.Options{Addr: addrs})
	if several := strings.Split(addrs, ","); len(several) > 1 {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: several})
	}
	for range sessions {
		s, err := rlock.NewSession(rdb, longLiveness, rlock.WithPrefix(prefix))
		if err != nil {
			panic(err)
		}
		for range each {
			go func() {
				_, hold, err := queuedKinds[letter](s, "x").Lock(bg)
				fmt.Println("granted", hold.Token(), err)
			}()
		}
	}
	select {}
}

// A world is a server in fake time that has all scripts.
type world struct {
	*testlock.Wire
	t *testing.T
}

func simulated(t *testing.T, test func(t *testing.T, w *world)) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		w := &world{Wire: wire, t: t}
		w.lock()
		testlock.Must(t, w.Client.ScriptLoad(bg, script.Text("lock/acquire")).Err())
		test(t, w)
	})
}

// lock returns lock x in a new session, which knows the clock of the server. The session of lockBeside does
// not use w.Net.
func (w *world) lock(options ...rlock.SessionOption) *rlock.Mutex {
	return w.lockOf(w.Client, options...)
}

func (w *world) lockBeside(options ...rlock.SessionOption) *rlock.Mutex {
	return w.lockOf(faultproxy.InMemory(w.t, w.Dial).Client(w.t), options...)
}

func (w *world) lockOf(rdb rlock.Client, options ...rlock.SessionOption) *rlock.Mutex {
	s := testlock.NewSession(w.t, rdb, options...)
	testlock.Warm(w.t, fairlock.New(s, "warm"))
	return fairlock.New(s, "x")
}

// kind returns the name of the script of a request.
func (w *world) kind(r faultproxy.Request) string { return testlock.Script(r.Script()) }

// lease returns the time until the holder's lease ends in Redis.
func (w *world) lease() time.Duration {
	w.t.Helper()
	ends, err := strconv.ParseInt(w.HGet(lockKey, "ends"), 10, 64)
	testlock.Must(w.t, err)
	return time.Until(time.UnixMicro(ends))
}

// entry returns the entry in Redis of a waiter that counts as alive until this time.
func entry(alive time.Time) string { return fmt.Sprint(alive.UnixMicro(), " 1 30000 NONCE 1@h ") }

// script runs a script of the lock with all of its keys.
func (w *world) script(name string, argv ...any) string {
	w.t.Helper()
	reply, err := w.scriptOn([]string{lockKey, queueKey, waitersKey}, name, argv...)
	testlock.Must(w.t, err)
	return reply
}

// scriptOn runs a script of the lock with only these keys.
func (w *world) scriptOn(keys []string, name string, argv ...any) (string, error) {
	return w.Client.Eval(bg, script.Text("lock/"+name), keys, argv...).Text()
}

// ask runs lock/acquire for this owner field.
func (w *world) ask(owner string) string {
	w.t.Helper()
	return w.script("acquire", owner, 1, int64(1)<<52, 30000, "", 60000, 15000, "lockline:s:", "nonce", "1")
}

// holdRaw acquires the lock by its script. The function that it returns releases the lock, and publishes
// messages on channels with this prefix.
func (w *world) holdRaw(owner string) func(channels string) {
	w.t.Helper()
	words := strings.Fields(w.ask(owner))
	if words[0] != "G" {
		w.t.Fatal(words)
	}
	return func(channels string) {
		w.t.Helper()
		if reply := w.script("release", owner, words[2], channels, 60000, 0,
			words[2]); !strings.HasPrefix(reply, "R") {
			w.t.Fatal(reply)
		}
	}
}

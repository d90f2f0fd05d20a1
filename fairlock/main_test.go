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

	// A waiter with this liveness time looks by itself when a test's patience has long ended.
	longLiveness = rlock.WithWaiterTimeout(3 * time.Hour)

	// queuedKinds are the kinds with a queue, by the letter in their keys.
	queuedKinds = map[string]testlock.Maker{"f": fairlock.New, "r": rlock.New}
)

func TestMain(m *testing.M) { testlock.Main(m, manySessions) }

func everyQueue(t *testing.T, test func(t *testing.T, letter string, newMutex testlock.Maker)) {
	for letter, newMutex := range queuedKinds {
		t.Run(letter, func(t *testing.T) { test(t, letter, newMutex) })
	}
}

// marked is how many attempts stand in the queue of lock x that the server has seen listen.
func marked(rdb redis.Cmdable, letter string) (n int64) {
	for _, entry := range rdb.HVals(bg, testlock.Prefix(rdb)+":"+letter+":{x}:w").Val() {
		if words := strings.Fields(entry); strings.HasSuffix(words[3], "+") {
			n++
		}
	}
	return n
}

// manySessions is a process that waits for lock x until it is killed. Its arguments are the letter of the
// lock's kind, the prefix of its keys, the addresses of the server, with commas between those of a Cluster,
// and how many sessions wait, each with how many goroutines.
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

// world is a server in fake time, which knows the scripts.
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

// lock is lock x of a new session that knows the clock, lockBeside that of one whose requests do not go
// through w.Net.
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

// kind names the script of a request.
func (w *world) kind(r faultproxy.Request) string { return testlock.Script(r.Script()) }

// lease returns how long Redis keeps the lock from others.
func (w *world) lease() time.Duration {
	w.t.Helper()
	ends, err := strconv.ParseInt(w.HGet(lockKey, "ends"), 10, 64)
	testlock.Must(w.t, err)
	return time.Until(time.UnixMicro(ends))
}

// entry returns the entry in Redis of a waiter that lives until this time.
func entry(alive time.Time) string { return fmt.Sprint(alive.UnixMicro(), " 1 30000 NONCE 1@h ") }

// script runs one of those of the lock.
func (w *world) script(name string, argv ...any) string {
	w.t.Helper()
	reply, err := w.scriptOn([]string{lockKey, queueKey, waitersKey}, name, argv...)
	testlock.Must(w.t, err)
	return reply
}

// scriptOn runs a script that is given only these keys.
func (w *world) scriptOn(keys []string, name string, argv ...any) (string, error) {
	return w.Client.Eval(bg, script.Text("lock/"+name), keys, argv...).Text()
}

// ask is a request for the lock, by script alone.
func (w *world) ask(owner string) string {
	w.t.Helper()
	return w.script("acquire", owner, 1, int64(1)<<52, 30000, "", 60000, 15000, "lockline:s:", "nonce", "1")
}

// holdRaw holds the lock by script alone. The function that it returns releases it and tells on channels of
// that prefix.
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

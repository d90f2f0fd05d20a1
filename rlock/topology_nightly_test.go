//go:build nightly

package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// A load has sessions whose goroutines contend for locks until stop is closed, and records what they see.
type load struct {
	t        *testing.T
	locks    []*loaded
	replicas atomic.Int32 // number of replicas that must have a lock before it is used
	stop     chan struct{}
	workers  sync.WaitGroup

	mu     sync.Mutex // guards errors
	errors map[string]int
}

// A loaded is one lock of a load.
type loaded struct {
	name string

	mu       sync.Mutex // guards the following
	token    int64      // token of the last holder
	inside   map[*rlock.Hold]bool
	taken    int
	overlaps int // number of times that two holds were valid together
	lost     int
}

// startLoad starts two goroutines for each session, which contend for reentrant and fair locks with these
// names.
func startLoad(t *testing.T, names []string, sessions []*rlock.Session) *load {
	w := &load{t: t, stop: make(chan struct{}), errors: map[string]int{}}
	for _, name := range names {
		w.locks = append(w.locks, &loaded{name: name, inside: map[*rlock.Hold]bool{}},
			&loaded{name: name, inside: map[*rlock.Hold]bool{}})
	}
	for _, s := range sessions {
		var ms []*rlock.Mutex
		for _, name := range names {
			ms = append(ms, rlock.New(s, name), fairlock.New(s, name))
		}
		for range 2 {
			w.workers.Go(func() {
				for !isClosed(w.stop) {
					i := rand.IntN(len(ms))
					w.cycle(w.locks[i], ms[i])
				}
			})
		}
	}
	t.Cleanup(w.end)
	return w
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *load) cycle(l *loaded, m *rlock.Mutex) {
	_, hold, err := m.Lock(bg, rlock.WaitAtMost(10*time.Second)) // moving a slot may take long
	if err != nil {
		w.saw("Lock", err)
		<-time.After(5 * time.Millisecond)
		return
	}
	if n := int(w.replicas.Load()); n > 0 {
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		err := hold.WaitReplicas(ctx, n)
		cancel()
		if err != nil {
			w.saw("WaitReplicas", err)
			_ = hold.Unlock(bg)
			return
		}
	}
	l.enter(w.t, hold)
	<-time.After(rand.N(2 * time.Millisecond))
	l.leave(hold)
	if err := hold.Unlock(bg); err != nil {
		w.saw("Unlock", err)
	}
}

// saw counts an error by its kind.
func (w *load) saw(of string, err error) {
	what := err.Error()
	for _, known := range []error{rlock.ErrLocked, rlock.ErrLost} {
		if errors.Is(err, known) {
			what = known.Error()
		}
	}
	if e := redis.Error(nil); errors.As(err, &e) {
		if code, _, _ := strings.Cut(e.Error(), " "); code != "ERR" { // texts after ERR vary
			what = code
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[of+": "+what]++
}

func (l *loaded) enter(t *testing.T, hold *rlock.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hold.Token() <= l.token {
		t.Errorf("%s: token %d after %d", l.name, hold.Token(), l.token)
	}
	l.token = hold.Token()
	for other := range l.inside {
		if other.Err() == nil && hold.Err() == nil {
			l.overlaps++
		}
	}
	l.inside[hold] = true
	l.taken++
}

func (l *loaded) leave(hold *rlock.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inside, hold)
	if hold.Err() != nil {
		l.lost++
	}
}

// progress waits until each lock was acquired five more times.
func (w *load) progress() {
	w.t.Helper()
	for _, l := range w.locks {
		l.mu.Lock()
		want := l.taken + 5
		l.mu.Unlock()
		testlock.Eventually(w.t, l.name+" is taken again and again", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.taken >= want
		})
	}
}

func (w *load) end() {
	if !isClosed(w.stop) {
		close(w.stop)
	}
	w.workers.Wait()
}

// report logs the numbers. It fails the test if a lock for which exclusive returns true had two valid
// holders.
func (w *load) report(exclusive func(name string) bool) {
	w.t.Helper()
	w.end()
	taken, lost, overlaps := 0, 0, 0
	for _, l := range w.locks {
		taken, lost, overlaps = taken+l.taken, lost+l.lost, overlaps+l.overlaps
		if l.overlaps > 0 && exclusive(l.name) {
			w.t.Errorf("%s: %d times two valid holders", l.name, l.overlaps)
		}
	}
	w.t.Logf("%d taken, %d lost, %d overlaps; errors: %v", taken, lost, overlaps, w.errors)
}

func all(string) bool { return true }

// Proves: failover
func TestASlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	rdb := cluster.Client(t)
	var sessions []*rlock.Session
	for i := range 3 {
		sessions = append(sessions, testlock.Batching(
			testlock.NewSession(t, rdb, rlock.WithPrefix("{app}")), 10*(i%2))) // all keys in one slot
	}
	w := startLoad(t, []string{"a", "b"}, sessions)
	w.progress()
	for range 6 { // each master gets the slot twice
		from := cluster.Master(t, "{app}")
		to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3] // the next master
		cluster.MoveSlot(t, "{app}", to)
		w.progress()
	}
	w.report(all)
	for _, l := range w.locks {
		if l.lost > 0 {
			t.Errorf("%s: %d holds were lost", l.name, l.lost)
		}
	}
	for what := range w.errors {
		if !strings.HasSuffix(what, ": TRYAGAIN") { // some of its keys had moved
			t.Error(what)
		}
	}
}

// Proves: failover
func TestAMasterOfAClusterDiesUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.ReadTimeout, o.DialTimeout, o.ClusterStateReloadInterval = 500*time.Millisecond,
			500*time.Millisecond, 500*time.Millisecond
	})
	var sessions []*rlock.Session
	for i := range 3 {
		sessions = append(sessions, testlock.Batching(
			testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(6*time.Second),
				rlock.WithWaiterTimeout(5*time.Second)),
			10*(i%2)))
	}
	doomed := cluster.Nodes[0]
	onDoomed := func(name string) bool { return cluster.Master(t, "lockline:r:{"+name+"}") == doomed }
	var names []string
	for there, elsewhere, i := 0, 0, 0; there < 2 || elsewhere < 2; i++ {
		switch name := fmt.Sprint("lock", i); {
		case onDoomed(name) && there < 2:
			there++
			names = append(names, name)
		case !onDoomed(name) && elsewhere < 2:
			elsewhere++
			names = append(names, name)
		}
	}
	dies := map[string]bool{}
	for _, name := range names {
		dies[name] = onDoomed(name)
	}
	w := startLoad(t, names, sessions)
	w.progress()
	doomed.Kill()
	w.progress()
	// A lock that a dead master had not replicated may be granted twice. But tokens must always grow, which
	// enter checks.
	w.report(func(name string) bool { return !dies[name] })
}

// If all replicas have a lock before it is used, not even a master that is cut off or stale can cause two
// holders. Proves: failover
func TestASentinelFailoverUnderLoadForgetsNoLockThatTheReplicaHas(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, 1)
	var sessions []*rlock.Session
	for i := range 3 {
		rdb := sentinel.FailoverClient(t, func(o *redis.FailoverOptions) {
			o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
		})
		sessions = append(sessions, testlock.Batching(testlock.NewSession(t, rdb), 10*(i%2)))
	}
	w := startLoad(t, []string{"a", "b"}, sessions)
	w.replicas.Store(1)
	w.progress()
	old := sentinel.Master(t)
	old.Freeze()
	sentinel.AwaitFailover(t, old)
	old.Thaw() // a master until it is told; then it becomes the replica
	w.progress()
	w.report(all)
}

// listening returns how many sessions that wait for lock x have a subscription. letter is the letter of the
// lock's kind. The test must use no other lock.
func listening(t *testing.T, cluster *testredis.Cluster, rdb *redis.ClusterClient, letter string) (n int) {
	if !cluster.Sharded() {
		for _, node := range cluster.Nodes {
			n += len(node.Client(t).PubSubChannels(bg, "lockline:s:*").Val())
		}
		return n
	}
	for _, entry := range rdb.HVals(bg, "lockline:"+letter+":{x}:w").Val() {
		if words := strings.Fields(entry); strings.HasSuffix(words[3], "/+") {
			n++
		}
	}
	return n
}

func TestAForcedUnlockWhileTheSlotIsAboutToMoveHandsOn(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	held := fairlock.New(testlock.NewSession(t, rdb), "x")
	_, forced := testlock.Lock(t, held, bg)
	defer runtime.KeepAlive(forced) // so that the hold is not released as forgotten
	waits := make(testlock.Waits, 1)
	next := testlock.NewSession(t, rdb, rlock.WithObserver(waits))
	got := testlock.Go(testlock.Bounded(t), fairlock.New(next, "x"))
	testlock.Receive(t, "it waits", waits)
	// The waiter must have its subscription now. Without it, the waiter could not learn of its grant before
	// the slot has moved, because a heartbeat names keys that are missing.
	from := cluster.Master(t, "{x}")
	to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
	node := from.Client(t)
	testlock.Eventually(t, "it listens", func() bool { return listening(t, cluster, rdb, "f") == 1 })

	// From now on, the node refuses requests for missing keys.
	testlock.Must(t, node.Do(bg, "CLUSTER", "SETSLOT", node.ClusterKeySlot(bg, "{x}").Val(), "MIGRATING",
		to.Client(t).ClusterMyID(bg).Val()).Err())
	// The keys of the queue are gone after its last waiter has left, so a second copy of the request is
	// refused.
	if _, err := held.ForceUnlock(bg); err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Error(err)
	}
	hold := testlock.Granted(t, got)
	cluster.MoveSlot(t, "{x}", to)
	testlock.Unlock(t, hold)
}

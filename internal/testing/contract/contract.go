// Package contract has tests of the promises that all kinds of locks make. The package of each kind runs the
// tests. Run uses fake time and servers in memory, and RunReal uses real servers.
package contract

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// lease is the lease of sessions without WithWatchdogTimeout.
const lease = protocol.DefaultLease

// A Kind is a kind of lock.
type Kind struct {
	Servers int   // number of servers of a lock; 0: one
	Has     Trait // traits of the kind
	Shared  bool  // programs with another library can use the same locks

	// New returns the Maker of a process, which has a session for each server.
	New func(process []*rlock.Session) Maker

	// Rival returns the Maker of another process, whose locks exclude the locks of New. If Rival is nil, New
	// takes its place. If several holders can be inside at once, a lock of the Rival must take all places.
	// Otherwise calls that should wait do not wait, and the tests hang.
	Rival func(process []*rlock.Session) Maker
}

// A Maker makes the locks of a process.
type Maker func(name string, options ...rlock.Option) Lock

// A Trait is a property that some kinds have and others do not. A test runs only for kinds that have all of
// the traits that it needs.
type Trait uint

// The traits of kinds.
const (
	Reenters Trait = 1 << iota // a Lock below the context of a hold is nested in the hold
	Counts                     // Inspect returns the hold count
	Fences                     // each holder has a higher token than all holders before, also in one process
	Excludes                   // no other goroutine of the same process holds the lock at the same time
	Turns                      // goroutines of one process are served in the order in which they came
	Lines                      // waiters of several processes are served in the order in which they came
	Hints                      // the error of a waiter says whether its own session is the holder
	Alike                      // a lock uses its servers in the same way, so tests disturb only the first
	Brief                      // Run omits the tests of traffic, because another kind sends such requests
	Mutexes                    // a lock is an rlock.Mutex, a MultiLock or a RedLock

	// Own means that no other library uses such locks. So Lockline allows any bytes as a name, and
	// HoldAtLeast can keep a lock taken after its Unlock.
	Own

	Lingers // a session can keep a lock that no goroutine holds, see rlock.WithLinger
)

// A Lock is a lock of a kind, with the calls of operators that the tests need.
type Lock struct {
	rlock.Locker
	Do      func(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error
	Inspect func(ctx context.Context) (rlock.State, error)
	Force   func(ctx context.Context) (bool, error) // takes the lock from all holders

	// ForceToken takes the lock from the holder that has this token. It may be nil.
	ForceToken func(ctx context.Context, token int64) (bool, error)
}

// Mutex returns m as a Lock.
func Mutex(m mutex) Lock { return Lock{m, m.Do, m.Inspect, m.ForceUnlock, m.ForceUnlockToken} }

type mutex interface {
	rlock.Locker
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error
	Inspect(ctx context.Context) (rlock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
	ForceUnlockToken(ctx context.Context, token int64) (bool, error)
}

// A world has the servers of one test, and two processes with locks of a kind.
type world struct {
	kind  Kind
	wires []*testlock.Wire
	nets  []*faultproxy.Proxy // the proxies of all processes
	new   Maker               // makes locks of one process
	rival Maker               // makes locks of another process
}

// A test is a test of the contract in fake time. It runs for kinds with the traits that it needs.
type test struct {
	needs Trait
	run   func(t *testing.T, w *world)
}

// Run runs the tests that need no real server for the kind k.
func Run(t *testing.T, k Kind) {
	if !k.Shared {
		k.Has |= Own
	}
	if k.Rival == nil {
		k.Rival = k.New
	}
	if !t.Run("TheRivalExcludesTheKind", func(t *testing.T) {
		testlock.InFakeTime(t, func(t *testing.T) { rivalExcludes(t, newWorld(t, k)) })
	}) {
		return
	}
	all := []map[string]test{exclusion, nesting, leases, ends, calls, input, linger}
	if k.Has&Brief == 0 {
		all = append(all, traffic)
	}
	for _, tests := range all {
		for name, test := range tests {
			if test.needs&^k.Has == 0 {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					testlock.InFakeTime(t, func(t *testing.T) { test.run(t, newWorld(t, k)) })
				})
			}
		}
	}
}

// rivalExcludes fails the test if the Rival does not exclude the kind, because other tests would then hang.
func rivalExcludes(t *testing.T, w *world) {
	_, hold := testlock.Lock(t, w.rival("x"), bg)
	_, _, err := w.new("x").TryLock(bg)
	testlock.WantError(t, "TryLock while the Rival holds the lock", err, rlock.ErrLocked)
	testlock.Unlock(t, hold)
	_, hold = testlock.Lock(t, w.new("x"), bg)
	_, _, err = w.rival("x").TryLock(bg)
	testlock.WantError(t, "TryLock of the Rival while the lock is held", err, rlock.ErrLocked)
	testlock.Unlock(t, hold)
}

func newWorld(t *testing.T, k Kind) *world {
	w := &world{kind: k}
	for range max(k.Servers, 1) {
		w.wires = append(w.wires, testlock.NewWire(t))
	}
	mine, theirs := w.process(t), w.process(t)
	w.new, w.rival = mine.lock, theirs.rival
	return w
}

// keeping returns a Maker whose locks keep all Holds reachable until the test ends, because no Hold may be
// garbage-collected in fake time. The locks also check the text of each error.
func keeping(t *testing.T, maker Maker) Maker {
	return func(name string, options ...rlock.Option) Lock {
		l := maker(name, options...)
		l.Locker = keeper{l.Locker, t}
		return l
	}
}

type keeper struct {
	rlock.Locker
	t *testing.T
}

func (k keeper) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	held, hold, err := k.Locker.Lock(ctx, options...)
	testlock.Keep(k.t, hold)
	testlock.OnePrefix(k.t, "Lock", err)
	return held, hold, err
}

func (k keeper) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	held, hold, err := k.Locker.TryLock(ctx, options...)
	testlock.Keep(k.t, hold)
	testlock.OnePrefix(k.t, "TryLock", err)
	return held, hold, err
}

// A process has a session for each server, and proxies that only these sessions use.
type process struct {
	sessions    []*rlock.Session
	clients     []*redis.Client
	nets        []*faultproxy.Proxy
	lock, rival Maker
}

func (w *world) process(t *testing.T, options ...rlock.SessionOption) *process {
	p := &process{}
	for _, wire := range w.wires {
		net := faultproxy.InMemory(t, wire.Dial)
		p.nets, w.nets = append(p.nets, net), append(w.nets, net)
		rdb := net.Client(t, func(o *redis.Options) {
			o.ReadTimeout, o.PoolTimeout = patience, 100*time.Millisecond
		})
		p.clients, p.sessions = append(p.clients, rdb),
			append(p.sessions, testlock.NewSession(t, rdb, options...))
	}
	p.lock, p.rival = keeping(t, w.kind.New(p.sessions)), keeping(t, w.kind.Rival(p.sessions))
	return p
}

func (p *process) close() (err error) {
	for _, s := range p.sessions {
		err = errors.Join(err, s.Close())
	}
	return err
}

// end closes the sessions and then the clients.
func (p *process) end(t *testing.T) {
	t.Helper()
	testlock.Must(t, p.close())
	for _, rdb := range p.clients {
		testlock.Must(t, rdb.Close())
	}
}

// settled is long enough for any request or hand-over to end, in fake time.
const settled = 50 * time.Millisecond

var bg = context.Background()

// occupy lets the rival process take a free lock. The function free unlocks the lock.
func (w *world) occupy(t *testing.T, name string) (free func()) {
	t.Helper()
	_, hold := testlock.TryLock(t, w.rival(name), bg)
	return func() { t.Helper(); testlock.Unlock(t, hold) }
}

// lose takes a lock from its holders by force. Then it calls hold.Extend, so that the process notices the
// loss.
func (w *world) lose(t *testing.T, name string, hold *rlock.Hold) {
	t.Helper()
	force(t, w.new(name))
	testlock.WantError(t, "the next request", hold.Extend(bg, time.Second), rlock.ErrLost)
}

func force(t *testing.T, l Lock) {
	t.Helper()
	if held, err := l.Force(bg); err != nil || !held {
		t.Fatalf("Force: held %v, %v", held, err)
	}
}

// fail makes all servers answer each command with this error. With "", the servers work again.
func (w *world) fail(reply string) {
	for _, wire := range w.wires {
		wire.SetError(reply)
	}
}

func inspect(t *testing.T, l Lock) rlock.State {
	t.Helper()
	st, err := l.Inspect(bg)
	testlock.Must(t, err)
	return st
}

// wants checks that hold has a higher token than `after`. It checks nothing if the kind has no tokens.
func (w *world) wants(t *testing.T, hold, after *rlock.Hold) {
	t.Helper()
	if after.Token() != 0 || w.kind.Has&Fences != 0 {
		testlock.WantAfter(t, hold, after.Token())
	}
}

// begin starts a Lock in a goroutine. The test fails if the Lock does not have to wait.
func begin(t *testing.T, l rlock.Locker, ctx context.Context, options ...rlock.Option) <-chan testlock.Grant {
	t.Helper()
	got := testlock.Go(ctx, l, options...)
	time.Sleep(settled)
	if len(got) > 0 {
		t.Errorf("it did not have to wait: %+v", <-got)
	}
	return got
}

// granted waits for the end of the Lock that begin has started, and returns the Hold. If the Lock fails,
// granted stops the test.
func granted(t *testing.T, got <-chan testlock.Grant) *rlock.Hold {
	t.Helper()
	return testlock.Granted(t, got)
}

// refusal returns the LockedError in err, and reports whether there is one.
func refusal(err error) (r rlock.LockedError, ok bool) {
	var locked *rlock.LockedError
	if errors.As(err, &locked) {
		return *locked, true
	}
	return r, false
}

// clean checks that the lock is free, and that no key on the servers is left, except keys that only remember
// tokens.
func (w *world) clean(t *testing.T, name string) {
	t.Helper()
	time.Sleep(settled)
	_, hold, err := w.rival(name).TryLock(bg)
	if err != nil {
		t.Errorf("something is left: %v", err)
	} else {
		testlock.Unlock(t, hold)
	}
	time.Sleep(settled)
	for _, wire := range w.wires {
		for _, key := range wire.Keys() {
			lock, fields := map[string]string{}, []string(nil)
			if wire.Type(key) == "hash" {
				fields, _ = wire.HKeys(key)
			}
			for _, field := range fields {
				lock[field] = wire.HGet(key, field)
			}
			if !testlock.Remembers(key, lock, time.Now()) {
				t.Errorf("%s is left: %v", key, lock)
			}
		}
	}
}

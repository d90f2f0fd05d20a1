// Package locktest is for tests of code that uses locks. It runs the library itself, with a Redis server in
// memory. [NewSession] returns a real [rlock.Session], so locks of all kinds work as in production:
//
//	func TestCheckout(t *testing.T) {
//		session := locktest.NewSession(t)
//		shop := NewShop(rlock.New(session, "orders:42"))
//		...
//	}
//
// A test that needs several sessions, or a fault such as an outage or a lost lock, starts the server itself.
// Sessions of one [Server] exclude each other like processes that use one Redis:
//
//	server := locktest.NewServer(t)
//	mine, theirs := server.NewSession(), server.NewSession()
//
//	locktest.Take(t, rlock.New(theirs, "orders:42")) // another process holds the lock
//	server.Lose("orders:42")         // the holder loses the lock: its context ends with rlock.ErrLost
//	server.Silence()                 // the server answers nothing
//	server.Silence(mine)             // one process is cut off, and the others are not
//	server.Refuse()                  // connections are cut and refused
//	server.Fail("LOADING not ready") // each command is refused with this error
//	server.Resume()                  // Silence, Refuse and Fail end, and the server still has its data
//	server.Restart()                 // the server starts again, without data
//
// For a RedLock, call NewServer once for each of its servers.
//
// # Time
//
// In a bubble of testing/synctest, the server, the library and the code under test share the fake clock of
// the bubble. Leases expire, renewals happen and waits end at exact times, and a time.Sleep of hours takes no
// real time. Make the server and the sessions inside the bubble, with the T of the bubble.
//
// Without a bubble, the server and the library use real time, which a test cannot advance. So a test of
// leases and timeouts belongs in a bubble. In other tests, call [Server.Lose] instead of waiting until a
// lease expires. The context of the holder then ends with [rlock.ErrLost], as after an expired lease. But
// another process may get the lock a moment before the context ends. [rlock.WithWatchdogTimeout] can make
// leases shorter.
//
// # How it works
//
// The server is miniredis. Clients reach it through net.Pipe, so tests need no port, and can run in parallel.
// Each session has a client of its own. Like the client in the README's quick start, this client has
// ContextTimeoutEnabled. A Lock and its Unlock together take about a millisecond. An imitation of the library
// would be faster, but would have only the kinds, the errors and the faults that somebody has imitated. Tests
// of a Cluster, of Sentinels, replicas, access rights and memory limits need a real server, because miniredis
// does not imitate these.
//
// At the end of the test, the faults of each server end, and its sessions and clients are closed, each
// session before its client. Then the server ends. No goroutine is left for goleak to find. Log lines of
// sessions go to the log of the test. If the code under test forgets a Hold, the lock stays held until the
// end of the test, because the garbage collector releases no Hold while any test has a Server.
//
// A program that does not import locktest does not build miniredis.
package locktest

import (
	"context"
	"testing"

	"github.com/lockline/lockline/rlock"
)

// NewSession starts a new server and returns a session of this server. The session and the server end with
// the test. The session writes its log to the log of the test, unless the options contain [rlock.WithLogger].
// If an option is not valid, NewSession stops the test, so only the goroutine of the test may call it.
// NewSession panics if t is nil.
func NewSession(t testing.TB, options ...rlock.SessionOption) *rlock.Session {
	t.Helper()
	return NewServer(t).NewSession(options...)
}

// Take takes a lock for the test. It stops the test if TryLock fails, for example because the lock is taken,
// so only the goroutine of the test may call it. The hold lasts until its Unlock, or until its session is
// closed at the end of the test. To play another process, take the lock with a second session:
//
//	hold := locktest.Take(t, rlock.New(server.NewSession(), "orders:42"))
//
// To take permits of a semaphore, pass the result of Semaphore.Locker. To take a read lock, pass the result
// of RWMutex.RLocker. Take panics if t is nil.
func Take(t testing.TB, lock rlock.Locker, options ...rlock.Option) *rlock.Hold {
	t.Helper()
	if lock == nil {
		t.Fatal("locktest: Take: the lock is nil")
	}
	_, hold, err := lock.TryLock(context.Background(), options...)
	if err != nil {
		t.Fatalf("locktest: Take: %v", err)
	}
	return hold
}

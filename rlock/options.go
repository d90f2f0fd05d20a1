package rlock

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// An Option changes how a lock is acquired. An Option that is passed to New is the default for the calls of
// that lock. An Option that is passed to Lock, TryLock or Do overrides the default for that call. A table in
// the package documentation shows for which kinds of locks each option counts.
type Option interface {
	lockOption()
}

// lockOption implements every Option of this package. engine.NewConfig applies an Option by its method Apply.
type lockOption func(*engine.Config)

func (lockOption) lockOption() {}

// Apply sets the option in c.
func (o lockOption) Apply(c *engine.Config) { o(c) }

// WithLease sets a fixed lease of d, which is not renewed. If the lock is not unlocked within d, it is lost.
// d must be from 10 ms to ten years. In a nested call, a shorter lease changes nothing, and a longer lease
// extends the lease that all nested holds share.
//
// A lock with a fixed lease is not passed on in memory ([WithHandover]), and the session does not keep it
// ([WithLinger]). If the program forgets a Hold with a fixed lease, the lock stays held until the lease ends.
// See the table of options in the package documentation.
func WithLease(d time.Duration) Option {
	return lockOption(func(c *engine.Config) {
		c.Lease = d
		if d == 0 {
			c.Lease = protocol.NoLease // so that Check can tell 0 from a missing option
		}
	})
}

// HoldAtLeast keeps the lock taken until d after its grant, even if Unlock comes sooner. Suppose that several
// machines start a scheduled job, each with WaitAtMost(0). Then only one of them runs the job, as long as
// their clocks differ by less than d. Unlock ends the hold as usual, with one request. Redis then keeps the
// lock taken until d has passed, without renewals, even if the process ends. After that, waiters are served.
// ForceUnlock frees the lock at once. Close and Shutdown leave the lock taken. Inspect shows the last owner
// with a ~ behind its owner field.
//
// If the process dies while it holds the lock, the lock is free when its lease ends, which may be before d
// has passed. So choose a lease of at least d. HoldAtLeast of a nested hold can only prolong the time for
// which the lock stays taken. With 0, the default, Unlock frees the lock. Any other d must be from 1 ms to
// ten years.
//
// The option counts for each member of a MultiLock, for RedLocks, for permits, and for read-write locks. It
// is an error for locks that are shared with Redisson. If it was passed to New for a member of a MultiLock,
// it counts for that member, unless the call of the MultiLock has another d. A MultiLock measures d from the
// time when it has all members. Even if a writer downgrades to a reader before d has passed, no other reader
// or writer is let in until d has passed. A lock that was lost before Unlock does not stay taken. See the
// table of options in the package documentation.
func HoldAtLeast(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.AtLeast = d })
}

// WaitAtMost bounds the wait of Lock and Do to d, in addition to the deadline of the context. After d, Lock
// and Do return a *[LockedError], or an error that matches os.ErrDeadlineExceeded if Redis has not replied.
// With zero, Lock does not wait, like TryLock. For TryLock, a d above zero bounds the wait for the reply of
// Redis. A d other than zero must be at least 1 ms. Choose a d that is longer than a request takes, because
// otherwise not even a free lock is granted. If WaitAtMost was passed to New for a member of a MultiLock, it
// bounds each wait for that member, unless the call of the MultiLock has WaitAtMost, too. See the table of
// options in the package documentation.
func WaitAtMost(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.Wait, c.Bounded = d, true })
}

// WithNote adds a note about this one call to the holder info in Redis, for example the number of the order
// for which the lock is held. While the call waits, and while it holds the lock, others see the note in the
// [LockedError] of a refusal, in Inspect and in the command line tool. The note is for people and has no
// other effect. It may have at most 512 bytes of UTF-8 without control characters. "", the default, means no
// note.
//
// Redis has the note of the call whose request got the lock. While the session passes the lock on to other
// goroutines in memory ([WithHandover]) or keeps it ([WithLinger]), that note stays, because no request is
// sent. A nested hold does not change the note, either. If goroutines of a session share a place in the
// queue, or a read lock, Redis has the note of the first of them. For a text that is the same for all locks
// of a session, choose [WithLabel]. Do not put secrets into a note. The note of the last holder stays in
// Redis for up to 45 s after the last Unlock, and with a long lease or for a RedLock for longer. See the
// table of options in the package documentation.
func WithNote(note string) Option {
	return lockOption(func(c *engine.Config) { c.Note = note })
}

// A SessionOption configures a session. A table in the package documentation shows for which kinds of locks
// each option counts.
type SessionOption interface {
	apply(*session.Config)
}

type sessionOption func(*session.Config)

func (o sessionOption) apply(c *session.Config) { o(c) }

// WithPrefix sets the prefix of the names of all keys and channels of the session. It has no effect on locks
// of package redisson. The default is "lockline". Sessions must have the same prefix to exclude each other.
// If the prefix contains braces, the first braces must enclose a hash tag ("{app}"), which puts all locks
// into one cluster slot. Braces behind the tag have no effect. NewSession rejects a prefix with which a lock
// could have the key of another lock. Such a prefix contains a lower-case letter between ":" and ":{", for
// example ":r:{". NewSession also rejects a prefix whose keys would begin with "redisson_lock_token:" or
// "lockline_lock_memory:". See the table of options in the package documentation.
func WithPrefix(prefix string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Prefix = prefix })
}

// WithWatchdogTimeout sets the lease of all locks without WithLease. The default is 15 s. d must be from 10
// ms to ten years. The session renews the lease after each third of d. If a process dies, its locks become
// free after at most d, and usually not before two thirds of d have passed. An outage or pause of up to about
// two thirds of d usually loses no lock. If Redis does not reply, a call without a deadline and without
// WaitAtMost ends its wait after d. docs/choosing.md says how to choose d. See the table of options in the
// package documentation.
func WithWatchdogTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Lease = d })
}

// WithWaiterTimeout sets for how long a waiter in the queue of a lock or semaphore counts as alive after its
// session last reached Redis. The default is 10 s. d must be from 10 ms to ten years. A waiter keeps its
// place by a heartbeat after each three fifths of d. By the heartbeat, the waiter also notices if a message
// was lost, or the data of the lock. The first lease of a lock that is handed over is at most d, and at most
// 2 s.
//
// Redis usually sees that the session of a dead waiter has no subscription, and skips the waiter. Redis
// cannot see that with classic pub/sub on a Cluster, without the right to use PUBSUB NUMSUB, or while the
// connection of the dead waiter still seems to be open. In these cases, Redis removes the waiter after d.
// Until that time, the dead waiter can delay the waiters behind it. All dead waiters together delay others by
// at most d and the interval of one heartbeat. See the table of options in the package documentation.
func WithWaiterTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.WaiterTimeout = d })
}

// WithHandover sets for how long a session may pass a reentrant lock on from one of its goroutines to the
// next in memory. After that time, the session releases the lock in Redis, so that other sessions have their
// turn. The default is 5 ms. With 0 or less, the session passes no lock on, except a lock that it keeps by
// [WithLinger]. Any other d must be from 100 µs to ten years. The option has no effect on fair locks, which a
// session passes on only to goroutines that share a place in the queue. It has no effect on RedLocks and on
// locks of package redisson, which are never passed on. Permits of a semaphore, and read-write locks that are
// held for writing, are passed on for the same time. During this time, readers can also join a read lock that
// their session holds. See the table of options in the package documentation.
func WithHandover(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Handover = d })
}

// WithLinger allows a session to keep a lock for up to d after its grant, even if no goroutine holds it. The
// next goroutine of the session that wants the lock gets it at once, without a request. The option is for
// work that is routed by key, so that usually the same session locks again. It counts for reentrant locks,
// read-write locks and semaphores. A second is enough for most uses. By default, and with 0 or less, the
// option is off. Any other d must be from 1 ms to ten years.
//
// If Redis refuses such a lock to another session, it sends a message to the session that keeps the lock.
// This session releases the lock at once if no goroutine has it, and otherwise with the last Unlock. So a
// wait costs one more message and one more release. For ten times d after the message, no session keeps the
// lock. If the message is lost, the wait lasts until d has passed. A TryLock does not wait for the release.
// It is refused, and a later TryLock finds the lock free.
//
// If the session keeps the lock, Unlock returns as soon as the hold has ended in this session, and observers
// are notified that the hold was released. If the later release of the lock finds that the lock is lost, the
// session logs that. If the process dies or stops, the lock stays taken until its lease ends, even if no
// goroutine had the lock. Close and Shutdown release all locks. Inspect shows whether the session may keep
// the lock ([State].Lingers), but not whether a goroutine has the lock. ForceUnlock frees the lock and
// notifies the session. Until the message arrives, a goroutine of the session can still get the lock. Then
// there can be two holders, which only their tokens tell apart. See the table of options in the package
// documentation.
func WithLinger(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Linger = d })
}

// WithClassicPubSub makes Redis notify waiters for locks and permits on a Cluster by PUBLISH, which reaches
// all nodes. By default, Redis notifies waiters by sharded pub/sub, which Redis 7 and Valkey have. A sharded
// message reaches only the master that has the lock, and its replicas. If the server or the rights of the
// user do not allow sharded pub/sub, the reply that makes a session wait says so, and Redis uses PUBLISH.
// Sessions with and without the option can use the same locks, except for locks of package redisson. For
// these locks, use the option if the JVMs do not use sharded pub/sub. The option has no effect with a client
// that is not a Cluster client.
func WithClassicPubSub() SessionOption {
	return sessionOption(func(c *session.Config) { c.Classic = true })
}

// WithLabel sets a text that Inspect shows for the session beside its host and process id. The label may have
// at most 512 bytes of UTF-8 without control characters. [WithNote] is for a single call. See the table of
// options in the package documentation.
func WithLabel(label string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Label = label })
}

// WithLogger sets the logger of the session for all that an operator must know. Examples are lost locks,
// forgotten holds, goroutines that wait for their own session, a lost subscription, and a panic in the
// client. If Redis has carried out no request for 2 s, the session logs that, at most twice in each outage,
// with the address and the last error. By default, and with nil, the logger is slog.Default. If the logger
// panics, the session continues.
func WithLogger(l *slog.Logger) SessionOption {
	return sessionOption(func(c *session.Config) { c.Logger = l })
}

// WithObserver sets the observer of the events of the session's locks. By default, or if o is nil or a nil
// pointer, there is no observer. See the table of options in the package documentation.
func WithObserver(o Observer) SessionOption {
	return sessionOption(func(c *session.Config) {
		c.Observer = nil
		if v := reflect.ValueOf(o); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
			c.Observer = func(ctx context.Context, e session.Event) {
				o.Observe(ctx, Event{
					Type: EventType(e.Kind), LockKind: Kind(e.Lock), Name: e.Name, Session: e.Session,
					At: e.At, Wait: e.Wait, Held: e.Held, Depth: e.Depth, Token: e.Token, Err: e.Err,
					HandedOver: e.HandedOver,
				})
			}
		}
	})
}

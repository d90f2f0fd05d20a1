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

// Option changes how a lock is acquired. If it is passed to New, it is the default of the Mutex. If it is
// passed to Lock, TryLock or Do, it overrides the default for that call. A table in the package
// documentation shows for which kinds of locks each option counts.
type Option interface {
	lockOption()
}

// lockOption is every Option of this package. Other packages of this module apply it by engine.NewConfig,
// which finds the method Apply.
type lockOption func(*engine.Config)

func (lockOption) lockOption() {}

// Apply sets the option in c.
func (o lockOption) Apply(c *engine.Config) { o(c) }

// WithLease sets a fixed lease of d, which is not renewed. The lock is lost when d is over. d must be from
// 10 ms to ten years. In a nested call, a shorter lease changes nothing, and a longer one extends the lease
// that all nested holds share.
//
// If a Hold with a fixed lease is forgotten, it stays held until the lease ends. See the table of options in
// the package documentation.
func WithLease(d time.Duration) Option {
	return lockOption(func(c *engine.Config) {
		c.Lease = d
		if d == 0 {
			c.Lease = protocol.NoLease // so that Check rejects it, and does not take it for no option
		}
	})
}

// HoldAtLeast keeps the lock taken until d after its grant, even if Unlock comes sooner. So a job
// that several machines start at about the same time runs once, if their clocks differ by less than d.
// Unlock ends the hold as usual, with one request. Until d is over, Redis then keeps the lock taken,
// without renewals, even if the process ends. Waiters are served after that. ForceUnlock frees the lock at
// once. Close and Shutdown leave it taken, too. Inspect shows the last owner with a ~ behind it.
//
// If the process dies while it holds the lock, the lock is free when its lease ends, which may be before d
// is over. So choose a lease of at least d. A nested hold can make d longer. With 0, the default, Unlock
// frees the lock. Any other d must be from 1 ms to ten years.
//
// The option counts for each part of a MultiLock or RedLock, for permits, and for read-write locks. It is an
// error for locks that are shared with Redisson. As an option of a member, it counts for that member, unless
// the call of the MultiLock has another d. A MultiLock measures d from the time when it has all members. If
// a writer downgrades to a reader before d is over, all others are kept out until d is over. A lock that was
// lost before Unlock does not stay taken. See the table of options in the package documentation.
func HoldAtLeast(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.AtLeast = d })
}

// WaitAtMost bounds the wait of Lock and Do to d, in addition to the deadline of the context. When d is
// over, they return a *[LockedError], or an error that matches os.ErrDeadlineExceeded if Redis has not
// replied. With zero, Lock is a TryLock. For TryLock, a d above zero bounds the wait for the reply of Redis.
// Any other d must be at least 1 ms. Choose a d that is longer than a request takes, because otherwise not
// even a free lock is granted. As an option of a member, it bounds each wait of a MultiLock for that member.
// See the table of options in the package documentation.
func WaitAtMost(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.Wait, c.Bounded = d, true })
}

// WithNote adds a note about this one call to the holder info in Redis, for example the order or the request
// for which the lock is held. Others see the note in the [LockedError] of a refusal, in Inspect and in the
// command line tool, while the call waits and while it holds the lock. The note is for people and has no
// other effect. It may have at most 512 bytes of UTF-8 without control characters. "", the default, means no
// note.
//
// Redis has the note of the call to which it granted the lock. While the session passes the lock on to other
// goroutines in memory ([WithHandover]) or keeps it ([WithLinger]), that note stays, because no request is
// sent. For the same reason, a nested hold does not change the note. Goroutines of a session that share a
// place in the queue, or a read lock, have the note of the first of them. For a text that is the same for
// all locks of a session, choose [WithLabel]. See the table of options in the package documentation.
func WithNote(note string) Option {
	return lockOption(func(c *engine.Config) { c.Note = note })
}

// SessionOption sets up a session. A table in the package documentation shows for which kinds of locks each
// option counts.
type SessionOption interface {
	apply(*session.Config)
}

type sessionOption func(*session.Config)

func (o sessionOption) apply(c *session.Config) { o(c) }

// WithPrefix sets the prefix of the names of all keys and channels of the session. The default is
// "lockline". Sessions must have the same prefix to exclude each other. If the prefix contains braces, the
// first ones must be a hash tag ("{app}"), which puts all locks into one cluster slot. Braces behind the tag
// mean nothing. NewSession rejects a prefix with which a lock could have the key of another lock. Such a
// prefix contains a lower-case letter between ":" and ":{", for example ":r:{", or begins with
// "redisson_lock_token:" or "lockline_lock_memory:". See the table of options in the package documentation.
func WithPrefix(prefix string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Prefix = prefix })
}

// WithWatchdogTimeout sets the lease of all locks without WithLease. The default is 15 s. d must be from 10
// ms to ten years. The lease is renewed at a third of d. If a process dies, its locks are free after two
// thirds of d to d. An outage or pause of up to about two thirds of d loses no lock. Waiters without a bound
// of their own wait for d while Redis does not reply. docs/choosing.md says how to choose d. See the table
// of options in the package documentation.
func WithWatchdogTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Lease = d })
}

// WithWaiterTimeout sets for how long a waiter in the queue of a lock or semaphore counts as alive after its
// session last reached Redis. The default is 10 s. d must be from 10 ms to ten years. A waiter keeps its
// place by a heartbeat at three fifths of d. By the heartbeat it also notices that a message or the data of
// the lock were lost. The first lease of a lock that is handed over is at most d, and at most 2 s.
//
// Redis usually sees that the session of a dead waiter has no subscription, and skips the waiter. Otherwise
// the waiter is removed after d. Until then dead waiters can delay those behind them, all together by d and
// one more heartbeat. That happens with classic pub/sub on a Cluster, without the right to use PUBSUB
// NUMSUB, and while the connections of the dead waiters seem to be open. See the table of options in the
// package documentation.
func WithWaiterTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.WaiterTimeout = d })
}

// WithHandover sets for how long a session may pass a reentrant lock on from one of its goroutines to the
// next in memory. Then it releases the lock in Redis, so that other sessions have their turn. The default is
// 5 ms. With 0 or less, every Unlock releases the lock. Any other d must be from 100 µs to ten years. The
// option has no effect on a fair lock, which only goroutines pass on that share a place in the queue, and on
// a RedLock, which is never passed on. Permits of a semaphore, and read-write locks held to write, are
// passed on for the same time. For that time, readers also join a read lock that their session holds. See
// the table of options in the package documentation.
func WithHandover(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Handover = d })
}

// WithLinger allows a session to keep a lock for up to d after its grant, even if no goroutine holds it. The
// next goroutine of the session that wants the lock gets it at once, with the next token and without a
// request. The option is for work that is routed by key, where mostly the same session locks again. It
// counts for reentrant locks, read-write locks and semaphores. A second is enough for most uses. By default,
// and with 0 or less, the option is off. Any other d must be from 1 ms to ten years.
//
// If another session is refused such a lock, it makes the keeper release it, at once if no goroutine has it,
// and otherwise with the last Unlock. So a wait costs one message and one release more. For ten times d
// after that, no session keeps the lock. If the message is lost, the wait lasts until d is over. A TryLock
// does not wait for the release. It is refused, and a later one finds the lock free.
//
// Unlock returns when the hold has ended in this session, and observers are notified that it was released.
// If the later release finds that the lock is lost, that is logged. If the process dies or stops, the lock
// stays taken until its lease ends, even if no goroutine had it. Close and Shutdown release all locks.
// Inspect shows which locks may be kept ([State].Lingers), but not whether a goroutine has them. ForceUnlock
// frees such a lock and notifies the session. Until the message arrives, a goroutine of the session can
// still get the lock, and only tokens tell the two holders apart. See the table of options in the package
// documentation.
func WithLinger(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Linger = d })
}

// WithClassicPubSub makes Redis notify waiters for locks and permits on a Cluster by PUBLISH, which reaches
// all nodes. By default they are notified by sharded pub/sub, which Redis 7 and Valkey have. Such a message
// reaches only the master that has the lock, and its replicas. If the server or the rights of the user do
// not allow that, the reply that makes a session wait says so, and PUBLISH is used. Sessions with and
// without the option can share locks, except for locks that are shared with Redisson. For these, use the
// option if the JVMs do not use sharded pub/sub. The option has no effect with a client that is not a
// Cluster client.
func WithClassicPubSub() SessionOption {
	return sessionOption(func(c *session.Config) { c.Classic = true })
}

// WithLabel sets a text that Inspect shows for the session beside its host and process id. It may have at
// most 512 bytes of UTF-8 without control characters. [WithNote] is for a single call. See the table of
// options in the package documentation.
func WithLabel(label string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Label = label })
}

// WithLogger sets the logger of the session for all that an operator must know. Examples are lost locks,
// forgotten holds, goroutines that wait for their own session, a lost subscription, or a panic in the
// client. Once for each outage, the session logs that Redis has carried out no request for 2 s, with the
// address and the last error. By default, and with nil, the logger is slog.Default. If the logger panics,
// the session continues.
func WithLogger(l *slog.Logger) SessionOption {
	return sessionOption(func(c *session.Config) { c.Logger = l })
}

// WithObserver sets the observer of the events of the session's locks. By default there is none. If o is nil
// or a nil pointer, there is no observer, either. See the table of options in the package documentation.
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

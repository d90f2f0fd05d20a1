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

// Option changes how a lock is acquired. Given to New it is the Mutex's default;
// given to Lock, TryLock or Do it overrides the default for that call. A table in the package documentation
// shows for which kinds of locks each option counts.
type Option interface {
	lockOption()
}

// lockOption is every Option of this package. What makes it one for the other packages, engine.NewConfig
// finds.
type lockOption func(*engine.Config)

func (lockOption) lockOption() {}

// Apply sets the option.
func (o lockOption) Apply(c *engine.Config) { o(c) }

// WithLease fixes the lease to d and switches its renewal off for that hold: the
// lock is lost when d is over. d is from 10 ms to ten years. Under re-entry a shorter lease
// changes nothing, a longer one lengthens the lease that all nested holds share.
//
// A Hold with a fixed lease that is forgotten is left to run out. See the table of options in the package
// documentation.
func WithLease(d time.Duration) Option {
	return lockOption(func(c *engine.Config) {
		c.Lease = d
		if d == 0 {
			c.Lease = protocol.NoLease // told apart from "not given", to be refused
		}
	})
}

// HoldAtLeast leaves the lock taken until d after its grant, also if Unlock comes sooner. So a job that
// several machines start at about the same time runs once, if their clocks differ by less than d. Unlock ends
// the hold as ever, with one request. What is left of d needs neither renewal nor a process. Waiters are
// served after it. ForceUnlock frees the lock before. Close and Shutdown leave it taken, too. Inspect shows
// the last owner with a ~ behind it.
//
// If the process dies, the lock is free when its lease is over, which may be before d is. So choose a lease
// that is no shorter. A nested hold can make it longer. With 0, the default, Unlock frees the lock. Any other
// d is from 1 ms to ten years.
//
// It goes for each part of a MultiLock or RedLock, for permits, and for read-write locks. It is an error for
// locks that are shared with Redisson. As an option of a member, it goes for that member, unless the call of
// the MultiLock has another d. A MultiLock counts d from the time when it has all members. A writer that goes
// on as a reader before d is over keeps all others out until it has ended. A lock that was lost before Unlock
// is not left taken. See the table of options in the package documentation.
func HoldAtLeast(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.AtLeast = d })
}

// WaitAtMost bounds the wait of Lock and Do to d, in addition to the context's deadline. When d runs out they
// return a *[LockedError], or an error that matches os.ErrDeadlineExceeded if Redis has not answered. With
// zero, Lock is a TryLock. For TryLock a d above zero bounds the wait for Redis to answer. Any other d is at
// least 1 ms. Choose one that is longer than a request takes, or even a free lock is not granted. As an
// option of a member, it bounds each wait of a MultiLock for that member. See the table of options in the
// package documentation.
func WaitAtMost(d time.Duration) Option {
	return lockOption(func(c *engine.Config) { c.Wait, c.Bounded = d, true })
}

// WithNote adds a note about this one call to the holder info in Redis, such as the order or the request
// for which the lock is held. Others see the note in the [LockedError] of a refusal, in Inspect and in the
// command line tool, while the call waits and while it holds the lock. The note is for people: it decides
// nothing. At most 512 bytes of UTF-8 without control characters. "", the default, means no note.
//
// Redis has the note of the call that it granted the lock to. As long as the session hands the lock on to
// other goroutines in memory ([WithHandover]) or keeps it ([WithLinger]), that note stays, because they send
// no request. For the same reason, a nested hold does not change the note. Goroutines of a session that wait
// in the queue as one, or that read together, have the note of the first of them. Choose [WithLabel] for what
// is the same for all locks of a session. See the table of options in the package documentation.
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

// WithPrefix sets what the names of all keys and channels of the session begin with, "lockline" by default.
// Sessions that shall exclude each other need the same. If it contains braces, the first ones must be a hash
// tag ("{app}"), which puts all locks into one cluster slot. Braces behind the tag mean nothing. NewSession
// refuses a prefix with which a lock could have the key of another lock. Such a prefix contains a lower-case
// letter between ":" and ":{", as ":r:{", or begins with "redisson_lock_token:" or "lockline_lock_memory:".
// See the table of options in the package documentation.
func WithPrefix(prefix string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Prefix = prefix })
}

// WithWatchdogTimeout sets the lease of all locks without WithLease. The default is 15 s. d is from 10 ms to
// ten years. The lease is renewed at a third of d. The lock of a process that dies is free after between two
// thirds of d and d. An outage or pause of up to about two thirds of d loses no lock. Waiters without a bound
// of their own ride out a Redis that does not answer for d. docs/choosing.md says how to choose d. See the
// table of options in the package documentation.
func WithWatchdogTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Lease = d })
}

// WithWaiterTimeout sets for how long a waiter in the queue of a lock or semaphore is considered alive after
// its session last reached Redis. The default is 10 s. d is from 10 ms to ten years. A place is kept by a
// heartbeat at three fifths of d. Those that wait find out by it if a message was lost, or if the lock's data
// are gone. A lock that is handed over is first leased for no longer than d, and for 2 s at most. Waiters
// that are gone are dropped after d where Redis cannot see that their sessions do not listen. Until then they
// can delay those behind them, all together by d and one more heartbeat. That is so with classic pub/sub on a
// Cluster, without the right to PUBSUB NUMSUB, and while their connections look open. See the table of
// options in the package documentation.
func WithWaiterTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Liveness = d })
}

// WithHandover sets for how long a session may hand a reentrant lock from one of its goroutines to the next
// in memory. Then it frees the lock in Redis, so that other sessions have their turn. The default is 5 ms.
// With 0 or less every Unlock frees it. Any other d is from 100 µs to ten years. A fair lock has no need of
// it: the goroutines whose turn comes next are known. A RedLock is never handed on in memory. Permits of a
// semaphore, and read-write locks held to write, are handed on for as long. For as long, goroutines join what
// their session holds to read. See the table of options in the package documentation.
func WithHandover(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Handover = d })
}

// WithLinger makes a session keep a lock for up to d after its grant, though all of its holds have ended. The
// next goroutine of the session that asks has it at once, with the next token and without a request. It is
// for work that is routed by key, where the session that unlocks is mostly the one that asks next, and goes
// for reentrant locks, read-write locks and semaphores. A second is enough for most. By default, and with 0
// or less, it is off. Any other d is from 1 ms to ten years.
//
// A session that is refused such a lock makes its keeper release it: at once if no goroutine has it, else
// with the last Unlock. So its wait costs a message and a release more than without. For ten times d after
// that, no session keeps the lock. If the message is lost, the wait lasts until d is over. TryLock does not
// wait: it is refused, and a later one finds the lock free.
//
// Unlock returns when the hold has ended here, and observers are told that it was released. If the release
// that follows finds the lock lost, that is logged. If the process dies or stops, the lock stays taken until
// its lease ends, also where no goroutine had it. Close and Shutdown release all. Inspect shows which locks
// may be kept so ([State].Lingers), but not whether a goroutine has them. ForceUnlock frees them, and tells
// the session, in which a goroutine can still get such a lock until then: tokens tell the two apart. See the
// table of options in the package documentation.
func WithLinger(d time.Duration) SessionOption {
	return sessionOption(func(c *session.Config) { c.Linger = d })
}

// WithClassicPubSub has waiters for locks and permits on a Redis Cluster woken by PUBLISH, which goes to all
// its nodes. By default, they are woken by sharded pub/sub, which Redis has from 7 on, and Valkey: a message
// goes to the master that has the lock, and its replicas. Where the server or the rights do not allow that,
// the reply that makes a session wait says so, and it is PUBLISH, too. Sessions that do it differently can
// share locks. Locks that are shared with Redisson are an exception: there, it is for JVMs that do not use
// sharded pub/sub. It changes nothing with a client that is not of a Cluster.
func WithClassicPubSub() SessionOption {
	return sessionOption(func(c *session.Config) { c.Classic = true })
}

// WithLabel sets what Inspect says of the session beside its host and process id. At most 512 bytes of UTF-8
// without control characters. [WithNote] is for a single call. See the table of options in the package
// documentation.
func WithLabel(label string) SessionOption {
	return sessionOption(func(c *session.Config) { c.Label = label })
}

// WithLogger sets where the session logs what an operator must know: lost locks, forgotten holds, waits for
// oneself, a lost subscription, a panic in the client. Once for each outage it logs that Redis has carried
// out no request for 2 s, with its address and the last error. By default, and with nil, the logger is
// slog.Default. Should it panic, the session goes on.
func WithLogger(l *slog.Logger) SessionOption {
	return sessionOption(func(c *session.Config) { c.Logger = l })
}

// WithObserver sets the observer of what happens to the session's locks. By default there is none. A nil o,
// or one that is a nil pointer, means none, too. See the table of options in the package documentation.
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

// Package rwlock provides a distributed read-write lock, for any number of readers or one writer. It uses
// the Session of package rlock.
//
//	m := rwlock.New(session, "catalog")
//	err := m.DoRead(ctx, read)   // other readers may be inside
//	err = m.Do(ctx, write)       // nobody else is inside
//
// # Leases
//
// Each session that reads has its own lease, which the session renews. Goroutines of one session that read at
// the same time share one entry in Redis and one renewal. Later readers join that entry in memory. If a
// reader dies, the leases of other readers do not change. A waiting writer gets the lock when each reader has
// unlocked, or its lease has ended. If a lease is lost, the contexts of its holds are canceled. A call with
// rlock.WithLease has its own entry, with a fixed lease.
//
// # Order
//
// Calls that cannot have the lock at once are queued in Redis, and served first come, first served. Readers
// behind a waiting writer wait, too. Neighboring readers in the queue are served together. So neither
// readers nor writers starve.
//
// Once a session knows that others wait, it has one place in the queue to read and one to write, at which its
// goroutines take turns. Two things happen in memory, for the time of rlock.WithHandover (5 ms by default)
// since the last request to Redis. Readers join a read lock that their session holds, and a writer passes the
// lock on to the next writer of its session. Each of these holds begins within that time, and may then last
// as long as necessary. So a writer waits for the waiters ahead of it, then for that time, and then for the
// longest read that has joined. A reader waits for the waiters ahead of it, then for that time, and then for
// one write.
//
// # Nested holds
//
// The context that Lock or RLock returns carries the hold. With this context, a reader can read again, and a
// writer can read or write again. The holds may be unlocked in any order. If a writer has read again and
// unlocks its write holds first, it stays a reader, and no other writer gets the lock in between. A reader
// cannot become the writer. Lock and TryLock return ErrUpgrade at once if their context carries a read hold.
// With another context, Lock waits for that read hold: a deadlock.
//
// Goroutines that share the context of one hold exclude each other below this hold, as if the hold were a
// read-write lock. A nested writer waits for all other holds that are nested in the same hold. Below
// rlock.WithOwner, a call nests in the latest hold of that owner, as with rlock.Mutex.
//
// # Tokens
//
// The fencing token of a writer is larger than the token of every earlier holder. The token of a reader is
// larger than the token of every earlier writer, and smaller than the token of every later writer. Readers
// that share an entry have the same token. A writer and the readers that are nested in its hold share one
// token, too. Readers of the same session that join them after a downgrade also have this token.
//
// # Guarantees
//
// The guarantee of mutual exclusion of package rlock holds between a writer and all others, under the same
// conditions. docs/guarantees.md describes these conditions.
package rwlock

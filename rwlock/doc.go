// Package rwlock provides a distributed read-write lock, for any number of readers or one writer. The package
// uses the Session of package rlock.
//
//	m := rwlock.New(session, "catalog")
//	err := m.DoRead(ctx, read)   // other readers may be inside
//	err = m.Do(ctx, write)       // nobody else is inside
//
// # Leases
//
// For each session that reads, Redis has an entry with a lease, which the session renews. Goroutines of one
// session that read at the same time usually share one entry. A call with rlock.WithLease has its own entry,
// with a fixed lease. If a process dies, only the leases of its own entries end. The first waiting writer
// gets the lock when each reader has unlocked, or its lease has ended. If an entry is lost, the contexts of
// all its holds are canceled.
//
// # Order
//
// Calls that cannot have the lock at once are queued in Redis, and served first come, first served. Readers
// behind a waiting writer wait, too. Readers that are next to each other in the queue are served together. So
// neither readers nor writers starve.
//
// In the queue, a session has at most one place to read and one to write, for all of its goroutines. Only
// readers with rlock.WithLease have further places.
//
// After each grant of Redis, a session may serve its own goroutines in memory for the time of
// rlock.WithHandover, 5 ms by default. The time begins again when Redis prolongs a read lock because nobody
// is queued, and when a writer becomes a reader. During this time, new readers join a read lock that their
// session holds, and a writer that unlocks passes the lock on to the next waiting writer of its session.
// Calls with rlock.WithLease are not served in this way. The holds of all other calls that are served in
// memory begin within this time, and may then last as long as necessary. So the first waiter in the queue
// waits for this time at most, and then for the holds that began during this time and have not ended. These
// are either reads or a single write.
//
// # Nested holds
//
// The context that Lock or RLock returns carries the hold. With this context, a reader can read again, and a
// writer can read or write again. The holds may be unlocked in any order. If a writer has read again and
// unlocks its write holds first, it stays a reader, and no other writer gets the lock in between. A reader
// cannot become the writer. If the context of Lock or TryLock carries a read hold but no write hold, the call
// returns ErrUpgrade at once. If a reader calls Lock with a context that does not carry its hold, Lock waits
// for the caller's own hold, which is a deadlock.
//
// Several goroutines can share the context of one hold. The holds that they nest in this hold exclude each
// other like the holds of a read-write lock: many readers or one writer at a time. A reader that is nested in
// a writer can write again, unless another reader is nested beside it. Then Lock and TryLock return
// ErrUpgrade, because two such readers would wait for each other forever. If a call has an owner
// (rlock.WithOwner), it nests in the latest hold of this lock that was taken by this owner, as with
// rlock.Mutex.
//
// # Tokens
//
// The fencing token of a writer is larger than the token of every earlier holder. The token of a reader is
// larger than the token of every earlier writer, and smaller than the token of every later writer. There is
// one exception. Readers that are nested in the hold of a writer have the writer's token. If the writer
// unlocks before these readers, other readers of its session can join them, and then also have this token.
// All readers that share an entry have the same token.
//
// # Guarantees
//
// A writer excludes all other holders. This guarantee has the same conditions as mutual exclusion in package
// rlock, which docs/guarantees.md describes.
package rwlock

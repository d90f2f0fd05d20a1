// Package rwlock is a distributed read-write lock: any number of readers, or one writer. It uses the Session of package rlock.
//
//	m := rwlock.New(session, "catalog")
//	err := m.RDo(ctx, read)   // beside other readers
//	err = m.Do(ctx, write)    // alone
//
// # Leases
//
// Each session that reads has a lease of its own, which the session renews. Goroutines of one session that read at the same time share one entry in Redis and one
// renewal, and join it in memory. A reader that dies does not touch the lease of another, and a writer gets in when the last lease ends. If a lease is lost,
// the contexts of its holds are canceled. rlock.WithLease gives one acquisition a fixed lease, and an entry, of its own.
//
// # Order
//
// Who cannot have the lock at once stands in a queue in Redis, and is served first come, first served: readers behind a waiting writer wait, too, and those that
// stand side by side are let in together. So neither side starves. A session has one place in the queue to read and one to write. Its goroutines take turns at it. Goroutines
// that come to read join what their session holds without asking Redis for as long as rlock.WithStreak says (5 ms by default) since it was last asked; and for as long, a
// writer hands the lock to the next writer of its session in memory. That bounds by how much others wait longer than in the order of the queue.
//
// # Reentrancy
//
// The context that Lock or RLock returns carries the hold. Under it, a reader can read again, and a writer can read or write again. The holds may be
// unlocked in any order. If a writer has read again and unlocks the write holds first, it goes on as a reader, and no writer comes between. A reader
// cannot become the writer: Lock returns ErrUpgrade at once. Goroutines that share one context exclude each other below it as they would with a lock of their
// own: one that writes again waits for the others that nest in the same hold. rlock.WithOwner makes all below a context one owner, as with rlock.Mutex.
//
// # Tokens
//
// A writer's fencing token is larger than that of every holder before it. A reader's is larger than that of every writer before it, and smaller than that of every writer
// after it. Readers of one session that share an entry have the same token.
//
// # What is guaranteed
//
// What rlock guarantees of mutual exclusion holds between a writer and all others, under the same conditions: see docs/guarantees.md. rlock.WithReplicas has no effect on a
// read-write lock.
package rwlock

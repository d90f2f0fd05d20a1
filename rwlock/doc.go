// Package rwlock is a distributed read-write lock: any number of readers, or one writer. It uses the Session
// of package rlock.
//
//	m := rwlock.New(session, "catalog")
//	err := m.DoRead(ctx, read)   // beside other readers
//	err = m.Do(ctx, write)    // alone
//
// # Leases
//
// Each session that reads has a lease of its own, which the session renews. Goroutines of one session that
// read at the same time share one entry in Redis and one renewal, and join it in memory. A reader that dies
// does not touch the lease of another. A writer gets in when the last lease ends. If a lease is lost, the
// contexts of its holds are canceled. An acquisition with rlock.WithLease has an entry and a fixed lease of
// its own.
//
// # Order
//
// Whatever cannot have the lock at once stands in a queue in Redis, and is served first come, first served.
// Readers behind a waiting writer wait, too. Readers that stand side by side are let in together. So neither
// side starves.
//
// Once a session knows that others wait, it has one place in the queue to read and one to write, at which its
// goroutines take turns. Two things are done in memory, for as long as rlock.WithHandover says (5 ms by
// default) since Redis was last asked. Readers join what their session holds, and a writer hands the lock to
// the next writer of its session. The last of them begins within that time, and may then hold the lock for as
// long as it likes. So a writer waits for those ahead of it, for that time, and for the longest read that
// joined meanwhile. A reader waits for those ahead of it, for that time, and for one write.
//
// # Nested holds
//
// The context that Lock or RLock returns carries the hold. Below it, a reader can read again, and a writer
// can read or write again. The holds may be unlocked in any order. A writer that has read again and unlocks
// its write holds first goes on as a reader, and no other writer comes between. A reader cannot become the
// writer: Lock and TryLock return ErrUpgrade at once if their context carries a read hold. With another
// context, Lock waits for that read hold, and so for itself.
//
// Goroutines that share one hold's context exclude each other below it, as they would with a lock of their
// own. One that writes again waits for the others that are nested in the same hold. Below rlock.WithOwner, a
// call nests in the latest hold of that owner, as with rlock.Mutex.
//
// # Tokens
//
// A writer's fencing token is larger than that of every holder before it. A reader's is larger than that of
// every writer before it, and smaller than that of every writer after it. Readers that share an entry have
// the same token. So have a writer, the readers nested in its hold, and those of its session that join them
// when it goes on as a reader.
//
// # What is guaranteed
//
// What rlock guarantees of mutual exclusion holds between a writer and all others, under the same conditions:
// see docs/guarantees.md.
package rwlock

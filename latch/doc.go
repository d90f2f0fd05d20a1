// Package latch provides a distributed count-down latch. Processes wait until other processes have counted
// down from a number to 0. A latch uses an [rlock.Session].
//
//	l := latch.New(session, "import 42")
//	set, err := l.TrySet(ctx, 3)   // set is false if there already is a run
//	err = l.CountDown(ctx)         // in each of three workers
//	err = l.Wait(ctx)              // anywhere: returns nil once all three have counted
//
// # Runs
//
// A run begins when TrySet sets the count. The run ends when the count is 0, or when Delete is called. After
// that, TrySet can begin a new run. If there is no run, Wait and CountDown do nothing and return nil.
//
// A waiter is a call of Wait. Its first request finds the current run, and the waiter waits for the end of
// this run. It returns even if a new run began before the waiter noticed the end of the old run.
//
// At the end of a run, Redis publishes one message, which wakes all waiters in all processes. A waiter reads
// the count, subscribes, and reads the count again when the subscription is confirmed. So it also notices if
// the run ends between the first read and the subscription. After that, it reads the count again
//   - when it has slept for the session's watchdog timeout (15 s by default), or for 40 s if 40 s is shorter;
//   - when its subscription is confirmed again after an interruption;
//   - when the lease of a party (see below) may have ended.
//
// The waiter needs the reads after a sleep because a message can be lost between two nodes of a Cluster.
// After a failover, its subscription can also be at a server on which nothing is published any more.
//
// # Requests that are sent again
//
// If the reply to a request is lost, the session sends a copy of the request. The request of a CountDown, a
// TrySet or a Delete has an id, so only one of its copies takes effect. After the first copy was sent, the
// copies are valid for a third of the watchdog timeout, but for at least 1 s and at most 10 s. They are never
// valid for longer than the watchdog timeout. A copy that arrives later has no effect. Redis remembers the id
// for longer than the copies are valid.
//
// After an error, CountDown may have counted all the same, because the reply may have been lost. If a program
// has to call CountDown again after an error, it should use a Party. Party.CountDown counts only once, even
// if it is called several times.
//
// # Parties
//
// If a process dies before it has called CountDown, the count does not reach 0. Waiters can notice the death
// of a process that has called Join. Join makes a party, which leases one of the remaining counts of the run.
// The session renews this lease like the lease of a lock ([rlock.WithWatchdogTimeout]). If the lease expires
// before Party.CountDown has counted, all calls of Wait end with a *PartyDiedError, which names the party.
// Later calls of Wait return this error, too, until a party joins by the same name, the count is 0, or the
// run is deleted.
//
// A waiter knows the time at which the first of the leases ends. If this lease is neither renewed nor ended
// by Party.CountDown, the waiter returns shortly after that time. If Party.Abandon is called, or the session
// of the party is closed, Redis ends the lease and notifies the waiters at once. After a party has counted,
// another party can join by the same name.
//
// # Lifetime
//
// A latch is one hash in Redis. Its key is P:l:{name}, where P is the session's prefix. During a run, the
// hash expires 24 h after the TrySet that began the run. Each successful request of CountDown, Count, Wait or
// Join, by any process, starts this time again, and so does each renewal of a party's lease. The requests of
// other calls, such as Inspect, do not. Waiters and parties send requests regularly. So while one of them can
// reach Redis, the hash does not expire. [WithLifetime] sets another time than 24 h. If a party has a longer
// lease than this time, the hash expires two minutes after the end of the lease at the earliest. After a run,
// the hash expires two minutes after the last request that changed it.
//
// # What is guaranteed, and when not
//
// Wait returns nil only if Redis has reported that the run ended at 0, or that there is no run. If Redis
// loses the data of the run during a Wait, the Wait returns ErrGone. A Wait that was cut off from Redis when
// the run ended can also return ErrGone, if it reconnects more than two minutes later.
//
// In a failover, and in a restart without appendfsync always, Redis can lose the last writes that it has
// acknowledged. Then the count may be higher than before and never reach 0, so that Wait does not return. Or
// the run may be gone, and Wait returns ErrGone. Redis never loses a CountDown without its id, or the id
// without the CountDown, so a copy of the request cannot count twice. If Wait must not wait forever for a
// lost count, give Wait a context with a deadline.
//
// A full Redis (maxmemory with noeviction) renews the leases of parties. Party.CountDown, Party.Abandon,
// Wait, Count and Inspect work there. TrySet, Join, Delete and Latch.CountDown return an error at once.
//
// Parties help against a lost CountDown only in part. If Redis loses the CountDown of a party but not its
// Join, the lease of the party expires. Then Wait returns a *[PartyDiedError], although the party has
// counted. If Redis also loses the Join, Wait does not return.
//
// The lease of a party ends by the clock of Redis. This clock can be set forward by more than the rest of the
// lease, or the machine of the party can be suspended for longer. Then Wait returns a *[PartyDiedError],
// although the party is alive. The context of the party ends with its next renewal.
//
// A message ends a Wait only if it contains the id of the run, which cannot be guessed. So a client that may
// only publish messages cannot end a Wait.
package latch

// Package latch provides a distributed count-down latch: processes wait until others have counted down from a
// number to 0. It uses the Session of package rlock.
//
//	l := latch.New(session, "import 42")
//	set, err := l.TrySet(ctx, 3)   // false: another process has set it
//	err = l.CountDown(ctx)         // in each of three workers
//	err = l.Wait(ctx)              // anywhere: returns nil once all three have counted
//
// # Runs
//
// TrySet begins a run. The run ends when the count is 0 or by Delete. Then the latch can be set again. A
// waiter waits for the run that existed when its Wait began. It returns when that run has ended, even if the
// latch was set again before the waiter noticed. If there is no run, there is nothing to wait for and nothing
// to count, so Wait and CountDown return nil at once.
//
// At the end of a run, one message is published, which wakes all waiters of all processes. A waiter reads the
// count, subscribes, and reads the count again when the subscription is confirmed. So it misses no end. It
// also reads the count
//   - each time that the session's watchdog timeout (15 s by default) has passed, or every 40 s if that is
//     shorter;
//   - after its subscription was interrupted;
//   - when the lease of a party ends before the party has counted.
//
// The first of these is needed because a message can be lost between two nodes of a Cluster. After a
// failover, the subscription can also be at a server that is out of use.
//
// # Requests that are sent again
//
// Each CountDown, TrySet and Delete has an id, which the latch remembers for longer than a copy of the
// request is valid. A request whose reply was lost is sent again, but takes effect only once. If a copy
// arrives more than a third of the session's lease after the request was first sent, the copy is void. (This
// time is at least 1 s and at most 10 s, and never more than the lease.) If the error of a CountDown says
// that the outcome is not known, the call may have counted. A program that has to repeat a CountDown after
// such an error should use a Party: Party.CountDown counts once, however often it is called.
//
// # Parties
//
// A plain latch hangs if a process dies before it has counted. A process that calls Join leases one count
// instead. The session renews the lease like the lease of a lock (rlock.WithWatchdogTimeout). If the lease
// expires before Party.CountDown, all Waits end with a *PartyDiedError, which names the party. Later Waits
// return this error, too, until another process joins by that name, the count is 0, or the latch is deleted.
// A waiter knows when the next lease ends, so it returns within moments of that. When a session is closed, or
// a party calls Abandon, the waiters are notified immediately. A party that has counted is forgotten, so its
// name can be used for another count of the run.
//
// # Lifetime
//
// A latch is one hash, P:l:{name}, where P is the session's prefix. During a run, the hash expires 24 h after
// the last call by any process. WithLifetime sets a time other than 24 h. Inspect does not count as a call. A
// Wait counts as a call until it returns, so a latch with a waiter does not expire. After a run, the hash
// expires two minutes after the last request that changed it.
//
// # What is guaranteed, and when not
//
// Wait returns nil only if the run was seen to reach 0, or if there was none. If the data of the run are
// gone, it returns ErrGone. It also returns ErrGone if it was cut off from Redis when the run ended, and
// reconnects more than two minutes later.
//
// In a failover, and in a restart without appendfsync always, Redis can lose the last writes that it has
// acknowledged. Then the count may be higher than before, so that Wait does not return. Or the run may be
// gone, and Wait returns ErrGone. A CountDown and the memory of its id are lost together, or not at all. If
// Wait must not wait forever for a count that was lost, give it a context with a deadline. Parties help only
// in part. If the count of a party is lost but its Join is not, the lease of the party expires. Then Wait
// returns a [*PartyDiedError], although the party has counted. If its Join is lost, too, Wait does not
// return.
//
// A message counts only if it names the run, whose id cannot be guessed. So a client that may only publish
// messages cannot end a Wait.
package latch

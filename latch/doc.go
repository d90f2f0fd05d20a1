// Package latch is a distributed count-down latch: processes wait until others have counted down from a
// number to 0. It uses the Session of package rlock.
//
//	l := latch.New(session, "import 42")
//	set, err := l.TrySet(ctx, 3)   // false: another process has set it
//	err = l.CountDown(ctx)         // in each of three workers
//	err = l.Wait(ctx)              // anywhere: returns nil once all three have counted
//
// # Runs
//
// TrySet begins a run, which ends when the count is 0 or with Delete. Then the latch can be set again. A
// waiter waits for the run that was under way when its Wait began. So it returns when that run is over, also
// if the latch was set again before the waiter learned of it. Where no run is under way there is nothing to
// wait for, and nothing to count: Wait and CountDown return nil at once.
//
// The end of a run is one published message, which wakes all waiters of all processes. A waiter subscribes
// first and looks at the count after that, so no end is missed. While it sleeps it looks once in each lease
// of the session (30 s by default), or every 40 s if that is shorter. Two nodes of a Cluster can lose a
// message, and after a failover the subscription can be at a server that is out of use. It also looks after
// its subscription was interrupted, and when the lease of a party ends that has not counted.
//
// # Requests that are sent again
//
// Each CountDown, TrySet and Delete has an id, which the latch remembers for longer than a copy of the
// request may come. A request whose reply was lost is sent again and takes effect once. A copy that comes
// later than a third of the session's lease after the request was first sent is void. (That is at least 1 s
// and at most 10 s, and never more than the lease.) If the error of a call says that its outcome is not
// known, the count may have been counted down by it, or not. A program that has to repeat a CountDown after
// such an error should use a Party: Party.CountDown counts once, however often it is called.
//
// # Parties
//
// A plain latch hangs if a process dies before it has counted. A process that calls Join leases one count
// instead. The session renews the lease, as that of a lock (rlock.WithWatchdogTimeout). If it runs out before
// Party.CountDown, all Waits end with a *PartyDiedError, which names the party, until another process joins
// by that name, the count is 0 or the latch is deleted. A waiter knows when the next lease ends, so it
// returns within moments of that. A session that is closed and a party that calls Abandon tell the waiters
// immediately. A party that has counted is forgotten, so its name can be used for another count of the run.
//
// # Lifetime
//
// A latch is one hash, P:l:{name}, where P is the session's prefix. While a run is under way, it lives for 24
// h after the last call for it by any process, or for what WithLifetime says. A wait is such a call, so a
// latch with a waiter does not expire. When the run is over, the key is deleted after two minutes.
//
// # What is guaranteed, and when not
//
// Wait returns nil only if the run was seen to reach 0, or if there was none. If the data of the run are
// gone, it returns ErrGone. So it does if it was cut off from Redis when the run ended, and comes back more
// than two minutes later.
//
// Redis loses what it has acknowledged last in a failover, and in a restart without appendfsync always. Then
// the count may be higher than it was, so that Wait does not return. Or the run may be gone, and Wait returns
// ErrGone. A count down and the memory of its id are lost together, or not at all. If a count that is lost
// must not be waited for without end, give Wait a context with a deadline. Parties help against processes
// that die, and not against this.
//
// A message counts only if it names the run, whose id cannot be guessed. So the right to publish alone ends
// no Wait.
package latch

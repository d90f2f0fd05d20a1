// Package multilock makes one lock of several: a [MultiLock] is held when all of its
// members are, a RedLock when a majority of independent servers grants it. Both
// are [rlock.Locker]s and have the Hold, options and errors of package rlock.
//
// # MultiLock
//
//	transfer := multilock.New(rlock.New(here, "account:1"), fairlock.New(there, "account:2"))
//	err := transfer.Do(ctx, func(ctx context.Context) error {
//		return work(ctx) // ctx ends if any of them is lost
//	})
//
// Members are of any kind and on any clients. The one context ends when any of them is
// lost, and the cause names it. The Hold's Token is 0, because no single number grows with
// every holder of every member: Parts has the holds of the members, in their order, each
// with its token. Deadline is the earliest of theirs.
//
// # Why it cannot deadlock
//
// A deadlock needs a goroutine that holds one lock while waiting for another. A
// MultiLock never does. It tries all members. If one is taken, it gives back the others and
// waits for one alone, in its queue if it has one. Once it has that one, it tries the
// rest. This is how std::lock of C++ takes mutexes in any order. So callers need not agree on an
// order, not even across servers. This does not cover what the caller holds already:
// to lock x, and then below it a MultiLock of y and z, waits for y and z while holding x.
// Put x among the members instead.
//
// # Which member it waits for
//
// Of the reentrant and fair locks that are taken, or that others are known to want, it waits for the first by
// name. If it knows of such before, it does not try. So all that want the same wait in one queue. In the
// queues of two members, each would be handed what another one needs. When it starts over for the third time,
// it waits for the member that was refused: another may have that one for long.
//
// Members of other kinds are tried one after another, in the order of their names. So callers that want the
// same members wait for the same one first, in whatever order they name them.
//
// # What bounds starting over
//
// Two that each take what the other needs can both give back and meet again. So from
// the third start on, each comes after a random delay whose bound doubles from 4 ms to 128 ms, and
// with every round it is less likely that they meet. That is a bound in probability:
// one that needs many locks which others hold most of the time may start over many
// times. It never ends where others always have each of two.
//
// Redisson's rule, which is to wait for the members in order while holding those before, for
// 1500 ms a member, and then to start over, resolves a deadlock only by that timeout.
//
// # What it costs
//
// Members that are reentrant or fair locks are tried at the same time, and all members are unlocked at the
// same time. Requests to one server share a pipeline, 100 at most. Other members are tried one after another:
// RedLocks, read-write locks, permits, locks of package redisson and Lockers of your own. A waiting call is
// granted the member that it waits for, and then tries the others, which takes one round trip more. Each
// start over costs what was taken and given back in it. An Observer is notified of every try of every member,
// also of those that came to nothing.
//
// Goroutines of a process that wait for the same first member pass that one on in memory, for as long as
// [rlock.WithHandover] allows. The others cost a request each to take and to release.
package multilock

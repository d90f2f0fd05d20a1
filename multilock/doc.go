// Package multilock combines several locks into one. A [MultiLock] is held when all of its members are held.
// A RedLock is held when a majority of independent servers has granted it. Both are [rlock.Locker]s, and
// have the Hold, options and errors of package rlock.
//
// # MultiLock
//
//	transfer := multilock.New(rlock.New(here, "account:1"), fairlock.New(there, "account:2"))
//	err := transfer.Do(ctx, func(ctx context.Context) error {
//		return work(ctx) // ctx ends if any of them is lost
//	})
//
// Members can be of any kind and use any clients. The context of the hold ends when any member is lost, and
// the cause names that member. The Token of the Hold is 0, because no single number grows with every holder
// of every member. Parts returns the holds of the members, each with its token. Deadline is the earliest
// deadline of the members.
//
// # Why it cannot deadlock
//
// A deadlock needs a goroutine that holds one lock while it waits for another one. A MultiLock never does.
// It tries all members. If one is taken, it releases the others and waits for that one alone, in its queue
// if there is one. Once it has that member, it tries the others. std::lock of C++ takes mutexes in any order
// in the same way. So callers need not agree on an order, not even across servers.
//
// That does not cover locks that the caller already holds. A caller that locks x, and then a MultiLock of y
// and z below it, waits for y and z while it holds x. Make x a member instead.
//
// # Which member it waits for
//
// Some reentrant and fair members may be taken, or known to be wanted by others. Of these, a MultiLock waits
// for the first one by name, and if it knows of one beforehand, it does not try the others first. So all
// callers that want the same members wait in one queue. If they waited in the queues of two members, each of
// them would be handed a member that another one needs. When a call starts over for the third time, it waits
// for the member that was refused, because another caller may hold that member for long.
//
// Members of other kinds are tried one after another, in the order of their names. So callers that want the
// same members wait for the same one first, in whatever order they name them.
//
// # What bounds starting over
//
// Two calls that each hold a lock that the other one needs can both release their locks, start over, and
// meet again. So from the third start on, each call first waits for a random time, whose bound doubles from
// 4 ms to 128 ms. With every round it is less likely that they meet. That is a bound in probability. A call
// that needs many locks may start over many times if other callers hold these locks most of the time. If at
// any time at least one of them is taken, it never ends.
//
// Redisson waits for the members in order while it holds the earlier ones, for 1500 ms for each member, and
// then starts over. That resolves a deadlock only by its timeout.
//
// # What it costs
//
// Members that are reentrant or fair locks are tried at the same time, and all members are unlocked at the
// same time. Requests to one server share pipelines of up to 100 requests. Other members are tried one after
// another: RedLocks, read-write locks, permits, locks of package redisson, and Lockers of your own. A
// waiting call gets the member that it waits for, and then tries the others, which takes one more round
// trip. Each start over costs the requests that take and release its members again. An Observer is notified
// of every try of every member, even if nothing came of it.
//
// Goroutines of a process that wait for the same first member pass that member on in memory, for as long as
// [rlock.WithHandover] allows. Each other member costs one request to take and one to release.
package multilock

// Package multilock combines several locks into one. A [MultiLock] is held when all of its members are held.
// A [RedLock] is held when a majority of independent servers has granted it. Both implement [rlock.Locker],
// and use the Hold, options and errors of package rlock.
//
// # MultiLock
//
//	transfer := multilock.New(rlock.New(here, "account:1"), fairlock.New(there, "account:2"))
//	err := transfer.Do(ctx, func(ctx context.Context) error {
//		return work(ctx) // ctx ends if either lock is lost
//	})
//
// Members can be of any kind and use any clients. The context of the hold ends when any member is lost, and
// the cause names that member. The method [rlock.Hold.Parts] returns the holds of the members, each with its
// own token. The Token of the Hold itself is 0, and its Deadline is the earliest deadline of the members.
//
// # Why a MultiLock cannot deadlock
//
// A deadlock needs a goroutine that holds one lock while it waits for another one. A MultiLock never holds a
// member while it waits for another member. It tries all members without waiting. If a member is taken, the
// MultiLock releases all members that it has, and waits for one member alone. If that member has a queue, the
// MultiLock waits in this queue. Once it has that member, it tries the others. So callers need not agree on
// an order of the members, even if the members are on several servers. Implementations of std::lock in C++
// use the same algorithm.
//
// A MultiLock cannot prevent deadlocks with locks that the caller already holds. For example, if a caller
// holds x and then locks a MultiLock of y and z, it waits for y and z while it holds x. To prevent this, make
// x a member, too.
//
// # Which member a MultiLock waits for
//
// If several members of package rlock or fairlock are taken, or are known to have waiters, Lock waits for the
// first of them by name. If a member is known to have waiters before the first try, Lock waits for that
// member at once. So callers that want the same members usually wait in one queue. If two callers waited in
// the queues of different members, Redis could hand each of them a member that the other one needs. From the
// third restart on, a call waits for the member that caused this restart. Without this rule, the call could
// start over again and again while another caller holds that member.
//
// Members of other kinds are tried one after another, in the order of their names. If Lock waits for no
// member of package rlock or fairlock, it waits for the first of these other members that is taken. The order
// is the same for all callers, even if they pass the members to New in different orders.
//
// # How often a call starts over
//
// Suppose that each of two calls holds a lock that the other call needs. Both calls release their locks and
// start over, and they can meet again. So from its third restart on, a call pauses for a random time before
// it tries again. The upper limit of this time doubles with each restart, from 4 ms to 128 ms, so the calls
// become less likely to meet again. The number of restarts has no fixed bound. A call that needs many locks
// may start over many times if other callers hold these locks most of the time. If one of the locks is taken
// at each try, the call never succeeds.
//
// The multilock of Redisson waits for its members in order, and holds the earlier members while it waits for
// the next one. After 1500 ms times the number of members, it releases them and starts over. So a deadlock of
// these locks ends only by this timeout.
//
// # What a MultiLock costs
//
// Members of packages rlock and fairlock are tried at the same time. RedLocks, read-write locks, permits,
// locks of package redisson, and Lockers of your own are tried one after another. All members are unlocked at
// the same time. Requests to one server share pipelines of up to 100 requests. A call that waits gets one
// member first, and needs at least one more round trip to try the others. Each restart costs requests to
// release the members that the call has, and to take all members again. An Observer is notified of every try
// of every member, even if the try fails.
//
// If several goroutines of one session wait for the same member of package rlock, they pass that member on in
// memory, for as long as [rlock.WithHandover] allows. Each other member costs one request to take it, and one
// request to release it.
package multilock

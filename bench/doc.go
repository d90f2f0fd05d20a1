// Command bench measures the locks of this module beside what users would pick
// instead. It starts a Redis of its own, or takes --redis URL. In every round every
// contender runs once in every scenario, one after the other, so that whatever else
// the machine does hits all alike; figures are medians over the rounds.
//
// Some libraries are fast in one round and slow in the next. Where the medians of two contenders
// are 1.15 apart and their rounds do not bear that out, both have further rounds, in turns with all
// others of that scenario that need them. That ends when it is clear which is faster, or each has had four times
// as many as planned. The sorted rounds show how sure a median is. At 75 % or more it lies between the
// second and the fifth of 6, or the 7th and the 14th of 20. An order is clear if these ranges do not
// overlap. One round has no range, so with --rounds 1 there are no further ones.
//
//	go run ./bench [--scenarios a,b] [--contenders a,b] [--rounds 5] [--duration 2s]
//	               [--redis URL | --embedded] [--json FILE] [--html FILE] [--markdown FILE]
//	               [--plots DIR [--only-plots a,b]] [--compare FILE]
//
// In crowd-N and quorum-crowd-N as many clients want one lock, as processes with one goroutine each
// would. They run for 5 times --duration. --scenarios crowd runs all sizes, and a plot shows the cycles over the number
// of clients. All of them run in this process, and their requests are counted by the servers. held takes two
// renewal intervals for each contender, and runs once, however many rounds the others have.
//
// In read-mostly, 95 of 100 cycles only read: rlock and redislock take part as locks that let in one at a time. In semaphore-1
// and semaphore-8, 32 goroutines of as many clients want one of 4 permits, for 1 ms each. In latch, a waiter of each of 100 clients waits until another
// client has counted down. The clients of latch run in this process, and their requests are counted by the servers.
//
// In other scenarios requests are counted, and the order of grants is looked at, in rounds of their own,
// behind proxies. Proxies, etcd, and the users of some scenarios are processes of their
// own: this program again, in another role. The exit status is 1 if
// mutual exclusion was violated, or a clear order is another than in the run that --compare names.
package main

// Command bench measures the locks of this module beside other libraries. It starts a Redis of its own, or
// uses the server of --redis URL. In each round, each contender runs once in each scenario, one after
// another, so that other work of the machine slows down all of them alike. Figures are medians over the
// rounds. The cycles of the slowest and the fastest round are beside them, and show how sure a median is.
//
//	go run ./bench [--scenarios a,b] [--contenders a,b] [--rounds 3] [--duration 1s]
//	               [--redis URL] [--markdown FILE] [--plot FILE]
//
// A whole run takes about seven minutes. A bar on the terminal shows the time that is left.
//
// All clients run in this process, but each has connections and sessions of its own, as a process would. Each
// family of scenarios supports a claim of the documentation:
//
//   - solo is the cost of an uncontended lock, for each idiom in which users write a cycle.
//   - distinct is the same for many locks at once.
//   - In hot1 and hot8, many goroutines of one client or of 8 want one lock.
//   - hold1ms is the same with work under the lock.
//   - In crowd, 8 to 1,000 clients with one goroutine each want one lock.
//   - handoff is the time in which one client follows another.
//   - quorum-solo, quorum-8 and quorum-crowd are for locks on a majority of independent servers.
//   - In read-mostly and read-mostly-1ms, readers work beside each other, if the library has locks for that.
//   - semaphore is for several permits.
//   - held is the cost of keeping a lock.
//   - latch is the time that a latch needs to wake its waiters.
//
// Crowds and held locks have one round, which takes longer.
//
// Requests and the server's time are from INFO commandstats, so a server that --redis names should have no
// other clients. The exit status is 1 if mutual exclusion was violated.
package main

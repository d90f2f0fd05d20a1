// Command bench measures the locks of this module beside other libraries. It starts a Redis of its own, or
// uses the server of --redis URL. In each round, each contender runs once in each scenario, one after
// another, so that other work of the machine slows down all of them alike. Figures are medians over the
// rounds. Beside the median of the cycles, the slowest and the fastest round show how far the rounds differ.
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
//   - distinct is the cost of many uncontended locks at once.
//   - In hot1 and hot8, many goroutines of one client or of 8 want one lock.
//   - hold1ms is hot8 with work of 1 ms under the lock.
//   - In crowd, 8 to 1,000 clients with one goroutine each want one lock.
//   - handoff is the time in which one client follows another.
//   - quorum-solo, quorum-8 and quorum-crowd are for locks on a majority of independent servers.
//   - In read-mostly and read-mostly-1ms, most cycles only read. Readers share the lock, if the library has
//     locks for that.
//   - semaphore is for a semaphore with several permits.
//   - held is the cost of keeping a lock.
//   - latch is the time that a latch needs to wake its waiters.
//
// The crowds and held have only one round, which takes longer.
//
// Requests and the server's time are from INFO commandstats. So if --redis names a server, that server should
// have no other clients. The exit status is 1 if mutual exclusion was violated.
package main

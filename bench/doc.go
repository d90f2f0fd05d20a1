// Command bench compares the locks of this module with other libraries, and prints a page of figures. A
// contender is one library with one set of options. In most scenarios, the clients of a contender run cycles,
// and each cycle takes a lock and releases it. In each round, the contenders of a scenario run one after
// another, so that other work of the machine slows down all of them alike. Most figures are medians over the
// rounds. For cycles per second, the page also shows the slowest and the fastest round.
//
// The command starts its own Redis servers. With --redis URL, scenarios with one server use that server
// instead.
//
//	go run ./bench [--scenarios a,b] [--contenders a,b] [--rounds 3] [--duration 1s]
//	               [--redis URL] [--markdown FILE] [--plot FILE]
//
// A whole run takes about seven minutes. A bar on the terminal shows the time that is left.
//
// All clients run in the process of the command, but each client has its own connections and sessions, as a
// process would have. Each family of scenarios supports a claim of the documentation:
//
//   - solo measures the cost of an uncontended lock, for each way in which users write a cycle.
//   - distinct measures the cost of many uncontended locks at once.
//   - In hot1, many goroutines of one client want one lock. In hot8, they belong to 8 clients.
//   - hold1ms is like hot8, with work of 1 ms under the lock.
//   - In crowd, 8 to 1,000 clients with one goroutine each want one lock.
//   - handoff measures the time from an unlock in one client to the grant in another client.
//   - quorum-solo, quorum-8 and quorum-crowd measure locks on a majority of independent servers.
//   - In read-mostly and read-mostly-1ms, most cycles only read. Readers share the lock if the library has
//     read locks.
//   - semaphore measures a semaphore with several permits.
//   - held measures the cost of keeping many locks held.
//   - latch measures the time that a latch needs to wake its waiters.
//
// The crowds and held have only one round, which takes longer.
//
// The figures of requests and of server time are from INFO commandstats. So the server of --redis should have
// no other clients. The exit status is 1 after an error, and if mutual exclusion was violated.
package main

// Command bench measures the locks of this module beside what users would pick
// instead. It starts a Redis of its own, or takes --redis URL. In every round every
// contender runs once in every scenario, one after the other, so that whatever else
// the machine does hits all alike. Figures are medians over the rounds, beside the
// cycles of the slowest and the fastest round, which say how sure a median is.
//
//	go run ./bench [--scenarios a,b] [--contenders a,b] [--rounds 3] [--duration 1s]
//	               [--redis URL] [--markdown FILE] [--plot FILE]
//
// All takes about seven minutes. A bar on the terminal says how long is left.
//
// All clients run in this process, with connections and sessions of their own, as
// processes have. Each of the twelve families of scenarios carries a claim of the
// documentation:
//
//   - solo: what an uncontended lock costs, by each idiom in which users write it
//   - distinct: the same for many locks at once
//   - hot1, hot8: many goroutines want one lock, of one client and of 8
//   - hold1ms: the same with something to do inside
//   - crowd: 8 to 1,000 clients want one lock, as processes with one goroutine each would
//   - handoff: how fast one client follows another
//   - quorum-solo, -8, -crowd: a RedLock on independent servers
//   - read-mostly, read-mostly-1ms: readers beside each other; locks of one holder let in one at a time
//   - semaphore: several permits
//   - held: what it costs to keep a lock
//   - latch: waiting until others are done
//
// Crowds and held locks have one round, which takes longer.
//
// Requests and the server's time are what Redis reports in INFO commandstats, so a server
// that --redis names should have no other clients. The exit status is 1 if mutual exclusion
// was violated.
package main

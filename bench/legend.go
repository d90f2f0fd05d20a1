package main

// explained is a word at the head of columns, and what it means.
type explained struct{ Term, Meaning string }

// legend says what the columns mean.
var legend = []explained{
	{"cycles", "a cycle is a lock and an unlock. In handoff it is a hand-over, in market a purchase, in semaphores a permit that is taken and given back. In latch, a latch is set, waited for by all, and counted down 100 ms later."},
	{"wait", "from the call of Lock to its return. p50 is the median, p99 is exceeded by one wait of 100. In crowds, a wait that the end of the run cuts short counts as long as it was."},
	{"possible, time inside", "cycles/s that an idle process could finish, whose stays inside are as long; and the part of the time in which the lock is held. On Linux a stay is a timer of the kernel's, because Go's sleeps are longer, by up to 1 ms, where a lock has something left to do after its grant."},
	{"permits in use", "the time for which permits are held, added up, as a part of what it would be if all permits were held all the time. A holder's time ends as it calls Unlock."},
	{"last return, in round trips", "from the call of the last count-down to the return of the last waiter; and its median in round trips. A round trip is the median of PINGs on the same way before the run. Pings of etcd are not measured."},
	{"writers' p99", "the wait that one writer of 100 exceeds, where the other columns are of readers and writers together."},
	{"requests", "as clients send them, counted in a round of its own behind proxies; in crowds and latch by commandstats. Those of etcd are not RESP, and are not counted."},
	{"published", "messages that clients or their scripts published, of commandstats. Those that the server sends rueidislock by itself are not in it."},
	{"server time", "what commandstats gives for the requests, scripts with all that they call. Of several servers it is a sum. In market it cannot be told apart."},
	{"server CPU", "of the whole server by INFO cpu, so with reading and writing. Of several servers it is a sum."},
	{"clients' CPU", "of the processes that run the clients (getrusage), this program's own work included. In handoff it is not told, since its processes look for each other all the time. In market it is also for the trades."},
	{"server calls", "of commandstats, what scripts call included."},
	{"allocs, bytes", "of the whole process (of all, in procs), with libraries' background work and this program's own."},
	{"least share, most", "cycles of the goroutine that had the fewest or the most, relative to the mean. The least is 0 where there are more clients than cycles."},
	{"had a turn", "the part of the clients that had the lock."},
	{"inversions", "grants that passed over an acquisition whose first request had been answered when that of the granted one was seen. hot8, hold1ms and rtt-hot8 only, each goroutine with a client of its own: where goroutines share a client, requests do not tell whose they are."},
	{"keys left, bytes left, left for", "of all keys whose names contain the lock's, when all are unlocked. Bytes are by MEMORY USAGE: the key, its value and its entry in the table of keys, but neither its entry in the table of expiries nor the tables themselves. The last is how long the key that stays longest stays, by PTTL."},
	{"stuck", "waiters that had not got the lock 2 s after all others were done with it."},
	{"lost", "unlocks that failed, which says that the lock was gone before."},
	{"violations", "two inside at once, or an increment lost under the lock. In read-mostly a writer beside any other, in semaphores more inside than there are permits, in latch a waiter that returned before the last count-down was called."},
	{"best", "of its column: starred, or in bold. raw, message, relay and watch are no libraries, and are left out of that."},
}

// Package watchdog keeps leases alive: it has them renewed in time and ends each one exactly at its deadline.
//
// A [Watchdog] keeps all leases of a session with one heap and one timer, and no goroutine while nothing is
// due. What falls due together travels together: renewals leave in batches of up to [MaxBatch], and each
// server has a flight of its own, so that one that hangs delays no other. A renewal never waits for an
// earlier one.
//
// The package knows nothing of locks or of Redis. What a renewal is, and what the end of a lease means, is up
// to the [Keeper].
//
// # Time
//
// The interval is cut into four slots, and what falls due within one slot leaves at its start. So leases
// taken at different moments travel together, at most a quarter of an interval early. In each interval a
// server gets about one batch for every MaxBatch leases, and never more than four batches that are not full.
// The slots are counted from the first lease kept, so one that is alone is renewed exactly at its interval. A
// lease with less than two intervals left is renewed halfway to its deadline at the latest. One that is as
// short when it is added is renewed after a twentieth of its time, since until then a short outage ends it.
//
// A renewal that failed is tried again after at most a sixteenth of the interval, then twice that, up to half
// the interval. The retry comes before half of the time to the deadline has passed. So a server that is back
// just in time is asked again. One that has not come back is tried again after at most half the interval, and
// at growing distances once it is two intervals late. Whatever the server does, the renewals out for one
// lease stay few.
package watchdog

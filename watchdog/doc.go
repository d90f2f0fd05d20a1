// Package watchdog keeps leases alive. It renews leases through a [Keeper]. If a lease was not renewed in
// time, the package ends the lease exactly at its deadline.
//
// A [Watchdog] keeps any number of leases with one heap and one timer. It needs no goroutine while no lease
// is due. Leases that are due together are renewed together, in batches of up to [MaxBatch]. A goroutine,
// called a flight, sends the batches for one server, one after another. Each server has flights of its own,
// so a server that hangs does not delay the other servers. A renewal of a lease does not wait for an earlier
// renewal of the same lease.
//
// The package does not depend on locks or on Redis. The [Keeper] sends the renewals, and decides what to do
// at the end of a lease.
//
// # Time
//
// The interval between two renewals of a lease (see [Watchdog.Add]) is divided into four slots. All leases
// with this interval that become due within a slot are renewed at the start of that slot. So leases that were
// added at different moments are renewed together, at most a quarter of an interval early. In each interval,
// a server gets about one batch for every MaxBatch leases, and usually no more than four batches that are not
// full. The first slot begins when a lease is added while there is no other lease. So a single lease is
// renewed exactly at its interval.
//
// If less than two intervals are left after a renewal, the next renewal comes halfway to the deadline at the
// latest. If less than two intervals are left when a lease is added, the first renewal comes after at most a
// twentieth of the time left. It comes so early because before it, even a short outage could end the lease.
//
// A renewal that failed is tried again after at most a sixteenth of the interval. The pause doubles with each
// further failure, up to half the interval. If more than a quarter of the interval is left until the
// deadline, the next retry comes before half of the time left has passed. So if the server works again
// shortly before the deadline, it still gets a retry. If a renewal does not return, the next renewal is sent
// after at most half the interval. After two and a half intervals without a good reply, the pauses grow, so
// that only few renewals of one lease are in flight at a time.
package watchdog

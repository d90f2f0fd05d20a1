// Package watchdog keeps leases alive: it has them renewed in time and ends each one exactly at its deadline.
//
// A [Watchdog] keeps all leases of a session with one heap and one timer, and without a goroutine while no
// lease is due. Leases that are due together are renewed together, in batches of up to [MaxBatch]. Each
// server has its own flight of batches, so a server that hangs does not delay the others. A renewal never
// waits for an earlier one.
//
// The package does not know locks or Redis. The [Keeper] sends the renewals, and decides what to do at the
// end of a lease.
//
// # Time
//
// The interval between two renewals of a lease (see [Watchdog.Add]) is divided into four slots. All leases
// that become due within a slot are renewed at its start. So leases that were taken at different moments are
// renewed together, at most a quarter of an interval early. In each interval a server gets about one batch
// for every MaxBatch leases, and never more than four batches that are not full. The slots are counted from
// the first lease that was added, so a single lease is renewed exactly at its interval.
//
// A lease with less than two intervals left is renewed halfway to its deadline at the latest. A lease that is
// as short when it is added is renewed after a twentieth of its time, because until then a short outage ends
// it.
//
// A renewal that failed is tried again after at most a sixteenth of the interval, then after twice that, up
// to half the interval. A retry always comes before half of the time to the deadline has passed, so a server
// that returns just in time gets one. If a renewal does not return, the next one is sent after at most half
// the interval. After two and a half intervals without a good reply, the pauses grow. So only few renewals of
// one lease are in flight at a time.
package watchdog

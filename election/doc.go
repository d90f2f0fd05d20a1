// Package election elects one leader among several processes, and shows the leader to any process. Each call
// of Campaign makes its caller a candidate. The leader holds a lock of package fairlock, and the other
// candidates wait for this lock.
//
//	scheduler := election.New(session, "scheduler")
//	leading, leadership, err := scheduler.Campaign(ctx, "10.0.0.7:8080")   // waits until it leads
//	if err != nil {
//		return err
//	}
//	defer leadership.Resign(ctx)   // hands the lock over to the next candidate
//	return lead(leading)           // leading ends with the leadership
//
//	leader, ok, err := scheduler.Leader(ctx)   // anywhere: leader.Value is "10.0.0.7:8080"
//
// [Election.Run] campaigns, runs a function while this process leads, and resigns when the function has
// returned. If the leadership is lost while the function runs, Run campaigns again after the function has
// returned.
//
//	err := scheduler.Run(ctx, "10.0.0.7:8080", lead)
//
// [Election.Campaign] waits until the caller leads. It returns a context for the leader's work, and the
// leader must stop this work when the context ends. Any process can read who leads ([Election.Leader]),
// follow changes ([Election.Observe]) and list the candidates ([Election.Inspect]).
//
// # Guarantees
//
// In Redis, there is at most one leader at a time. Each leadership has a fencing token that is larger than
// the tokens of all earlier leaderships. If the lease of a leader ends, the leader's context is canceled
// before another candidate can lead.
//
// docs/failures.md describes the cases in which two leaders can act at the same time. For example, a leader's
// process may have been stopped for longer than its lease, or Redis may have forgotten the leadership in a
// failover. So a leader should send its token with each write to a database, and the database must refuse a
// token that is smaller than the largest token so far.
//
// Candidates lead first come, first served, in the order in which their requests reached Redis. Several
// candidates of one session lead one after another, and each leadership has its own token. If they begin to
// campaign at about the same time, they share one place in the queue. When the first of them leads, the next
// candidate is queued again, behind the candidates of other sessions.
//
// Redis stores a leader's value together with the leader's token. The script that reads the value compares
// this token with the token of the lock. So a value is only returned if its leader held the lock in Redis at
// that instant. At that instant, the next leadership has not begun in Redis. But the leadership may have
// ended already by the leader's own clock, or because the leader is resigning. Of several values of one
// leader, the newest value counts, even if the requests that store the values arrive late or twice.
//
// # When a leader is replaced
//
//   - When the leader calls Resign, or its session is closed, Redis hands the lock over to the next candidate
//     at once, and notifies that candidate by a message. If no candidate waits, observers still notice a
//     Resign at once. But they notice a closed session only when the lease would have expired.
//   - If the leader's process dies, or is cut off from Redis, the next candidate leads when the lease has
//     expired. The lease is as long as the session's watchdog timeout, and is renewed after each third of
//     this time. So by default, the next candidate leads after 10 to 15 s.
//   - If the next candidate is dead, too, it delays the other candidates like a dead waiter of package
//     fairlock.
//   - If the leader's process restarts, the new process is a new candidate, and does not resume the
//     leadership. The reason is that the former process may still run, cut off from the network. If the new
//     process resumed the leadership, two leaders with one token could act at the same time. A process that
//     shuts down should call Resign or close its session, so that no candidate has to wait for the lease to
//     expire.
//
// After a failover of Redis, a leadership continues if the new master has the data of the lock. If not,
// another candidate can be elected, and docs/failures.md describes when the former leader notices the loss.
// If the new master has the lock but not the newest value, the leader's session stores the value again within
// a third of the lease.
//
// # What it uses in Redis
//
// The leader of the election NAME holds the fair lock NAME. So operators can use Inspect and ForceUnlock of
// fairlock.New(session, NAME), and the command `lockline inspect NAME`. Do not use this lock for anything
// else.
//
// Redis stores the value in the field "leader" of the lock's hash, which has the key PREFIX:f:{NAME}. With
// the default lease, this key expires 15 to 45 s after the last leadership has ended. Resign deletes the
// value. Observers subscribe to the channel PREFIX:f:{NAME}, and read the value again after each message.
package election

// Package election elects a leader among the processes that campaign for it, and shows the leader to any
// process. It uses the fair lock of package fairlock: the leader holds the lock, and the candidates wait for
// it.
//
//	scheduler := election.New(session, "scheduler")
//	leading, leadership, err := scheduler.Campaign(ctx, "10.0.0.7:8080")   // blocks until it leads
//	if err != nil {
//		return err
//	}
//	defer leadership.Resign(ctx)   // hands over at once
//	return lead(leading)           // leading is canceled when the leadership ends
//
//	leader, ok, err := scheduler.Leader(ctx)   // anywhere: leader.Value is "10.0.0.7:8080"
//
// [Election.Run] does all of this for a function: it campaigns, runs the function while this process leads,
// resigns, and campaigns again after a loss.
//
//	err := scheduler.Run(ctx, "10.0.0.7:8080", lead)
//
// A candidate calls [Election.Campaign], which returns once it leads. The leader works until the context that
// Campaign has returned ends. Any process can read the leader ([Election.Leader]), follow the changes
// ([Election.Observe]) and list the candidates ([Election.Inspect]).
//
// # Guarantees
//
// There is at most one leader at a time. Each leadership has a fencing token that is larger than the tokens
// of all earlier leaderships. If a leadership is lost, its context ends before Redis gives the lock to the
// next candidate. But a process that was stopped for a while can act before it notices, and Redis can forget
// a leadership that it has acknowledged (see below). So a database that the leader writes to must compare
// tokens, and refuse a token that is smaller than the largest token that it has seen.
//
// Candidates lead first come, first served, in the order in which their requests reached Redis. Several
// candidates of one session count separately: each has its own place in the queue, its own grant and its own
// token.
//
// A leader's value is stored with its token. Readers compare this token with the lock, in one script. So a
// value is only returned if the lock belonged to that leader in Redis at that instant. The leadership may
// have ended already, by the leader's own clock or because the leader is resigning, but the next leadership
// has not begun. A new value replaces an older one, even if copies of their requests arrive late or twice.
//
// # When a leader is replaced
//
//   - When the leader calls Resign, or its session is closed, the next candidate leads at once. Redis hands
//     the lock over, and notifies the candidate by a message. If there is no candidate, observers notice a
//     Resign at once, but a closed session only when the lease would have expired.
//   - If the leader's process dies, or is cut off from Redis, the next candidate leads when the lease has
//     expired. The lease is the session's watchdog timeout, and is renewed after each third of it. So by
//     default this takes 10 to 15 s.
//   - If the next candidate is dead, too, it delays the others like a dead waiter of package fairlock.
//   - If the leader's process restarts, the new process is a new candidate, and does not resume the
//     leadership. Redis does not know whether the former process has ended or is only cut off, and two
//     leaders with one token could act at the same time. A process that shuts down should call Resign or
//     close its session, so that no candidate has to wait.
//
// After a failover of Redis, a leadership continues if the replica knew of it. If the replica did not know of
// it, another candidate can be elected. docs/failures.md describes when the former leader finds out. A value
// that the replica did not know is stored again by the leader's next renewal.
//
// # What it uses in Redis
//
// An election named NAME uses the fair lock NAME. So fairlock.New(session, NAME), its Inspect and
// ForceUnlock, and `lockline inspect NAME` work on it. Use that lock for nothing else.
//
// The value is the field "leader" of the lock's hash, PREFIX:f:{NAME}. With the default lease,
// that key expires 15 to 45 s after the last leadership has ended. Resign deletes the value. Observers
// subscribe to the channel PREFIX:f:{NAME}, and read the value again after each message.
package election

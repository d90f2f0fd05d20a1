// Package election elects a leader among the processes that campaign for it, and tells others which one
// leads. It is made of the fair lock of package fairlock: the leader holds the lock, and the candidates wait
// for it.
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
// A candidate calls [Election.Campaign], which returns once it leads. The leader works until the context that
// Campaign has returned ends. Any process can ask for the leader ([Election.Leader]), follow the changes
// ([Election.Observe]) and list the candidates ([Election.Inspect]).
//
// # Guarantees
//
// There is at most one leader at a time. Each leadership has a fencing token that is larger than all before
// it. The context of a leadership that is lost ends before Redis gives the lock to the next candidate. But a
// process that stands still can act before it looks, and Redis can forget a leadership that it has
// acknowledged (see below). So what a leader changes must compare tokens, and refuse one that is smaller than
// the largest it has seen.
//
// Candidates lead first come, first served, in the order in which Redis saw them. That goes for several
// candidates of one session, too. Each has a place in the queue, a grant and a token of its own.
//
// A leader's value is stored with its token. A reader compares that with the lock, in one script. So a value
// is only returned if Redis had the lock for that leader at that instant. That leader may have ended already,
// by its own clock or because it is resigning, but no other one has begun. A new value replaces an older one
// whatever copies of their requests arrive late or twice.
//
// # When a leader is replaced
//
//   - After Resign, or when its session is closed: at once, by the message that hands over the lock. If there
//     is no candidate, observers learn of a Resign at once, and of a closed session when the lease would be
//     over.
//   - If its process dies, or is cut off from Redis: when the lease is over. That is the session's watchdog
//     timeout, less the time since the last renewal, which is a third of it at most. By default it takes 20
//     to 30 s.
//   - If the next candidate is dead, too, it delays the others as dead waiters of package fairlock do.
//   - If its process restarts, it is a new candidate, and does not resume the leadership. Redis cannot tell
//     whether the former process has ended or is only cut off, and two leaders with one token could act side
//     by side. A process that shuts down should call Resign or close its session, so that no candidate has to
//     wait.
//
// After a failover of Redis, a leadership that the replica knew of goes on. If the replica did not know of
// it, another candidate can be elected. The former leader finds that out as soon as Redis answers again if
// its session notices the outage. Otherwise it finds out with its next renewal, a third of the lease later at
// most. Tokens still grow, unless the clock of the new master is behind. A value that the replica did not
// know is stored again by the leader's next renewal.
//
// # What it uses in Redis
//
// An election named NAME uses the fair lock NAME. So fairlock.New(session, NAME), its Inspect and
// ForceUnlock, and `lockline inspect NAME` work on it. Use that lock for nothing else.
//
// The value is a field of the lock's metadata, PREFIX:f:{NAME}:t. That key expires after the last leader: 15
// s later at the earliest, and with the defaults a minute later at the latest. Resign deletes the value.
// Observers subscribe to the channel PREFIX:f:{NAME}. Its messages only say that something has changed.
package election

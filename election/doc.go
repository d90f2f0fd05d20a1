// Package election elects a leader among the processes that campaign for it, and tells others who leads. It is made of
// the fair lock of package fairlock: the leader holds the lock, and the candidates wait for it.
//
// A candidate calls Campaign, which returns once it leads. The leader works until the context that Campaign returned
// ends. Any process can ask for the leader (Leader), follow the changes (Observe), and list the candidates (Candidates).
//
// # Guarantees
//
// There is at most one leader at a time. Each leadership has a fencing token that is larger than all before it. A
// leadership that is lost ends its context before Redis gives the lock to the next candidate. A process
// that stands still can act before it notices. Redis itself can forget a leadership that it has
// acknowledged: see below. What a leader changes must therefore compare tokens, and
// refuse one that is smaller than the largest it has seen.
//
// Candidates are elected first come, first served, in the order in which Redis saw them. Candidates of one session are
// elected one by one, too: each has a place in the queue, a grant and a token of its own.
//
// A leader's value is stored with its token. A reader compares that with the lock in one script. So a value is only returned
// if Redis still had the lock for that leader when it looked. The leader itself may have ended by then, by its own
// clock or because it is resigning, but no other one has begun. A new value replaces an older one
// also if copies of their requests arrive late or twice.
//
// # When a leader is replaced
//
//   - After Resign, or if its session is closed: at once, by the message that hands over the lock.
//   - If its process dies, or is cut off from Redis: when the lease is over. That is the session's watchdog timeout, 30 s by default, less the time since the last
//     renewal. Renewals are sent every third of the lease. So it takes 20 to 30 s by default.
//   - If the next candidate is dead, too: see package fairlock. It delays the others by its liveness time at most.
//
// After a failover of Redis, a leadership that the replica knew of goes on. One that it did not know is forgotten: another candidate can be
// elected, and the former leader finds that out with its next renewal, at most a third of the lease later. Tokens still grow, unless the
// clock of the new master is behind. A value that the replica did not know is stored again by the leader's next renewal. rlock.WithReplicas has replicas confirm each leadership, not its value.
//
// # What it uses in Redis
//
// The lock is the fair lock of the election's name: fairlock.New(session, name), `lockline inspect` and ForceUnlock work on it. Use that lock for nothing else. The value is a field of the lock's metadata,
// prefix:f:{name}:t, which expires some minutes after the last leader: at least one, and with the default lease two and a half at most. Resign deletes the value. Observers subscribe to the channel
// prefix:f:{name}. Messages on it only say that something has changed. Sessions with rlock.RedissonKeys are refused.
package election

// Package pubsub wakes waiters by message: a [Hub] keeps one subscription connection, whatever
// the number of channels and of their listeners, and fans what arrives out by channel. On a Cluster that
// connection leads to any master that works ([NewClusterHub]). For a Cluster's sharded channels, the hub
// keeps a connection to each master that has some ([NewShardedHub]).
//
// # Never losing a wake-up
//
// Redis keeps no message for those that are not subscribed at that moment. So a listener has to ask its
// server for the present state whenever its subscription may have had a gap. The hub says when.
// [Subscription.Take] reports resubscribed after each confirmation of the channel by the server: the first
// one, and one after each reconnect or at a new server. It does so at once for a channel that is confirmed
// already, and when messages were dropped because they were not taken. A listener that asks after each
// resubscribed, and acts on each message, knows everything that was published to the channel, or asked later
// than that.
//
// # How it works
//
// One goroutine, the owner, dials, writes all commands and closes. No caller ever waits for it, since
// go-redis dials inside its commands and may take many seconds. What was asked for while it was busy goes out
// as one SUBSCRIBE. A second goroutine reads. The server answers in the order of the commands, so the hub
// keeps a list of those without a reply. A channel is confirmed by the reply to its last SUBSCRIBE, and a
// late reply to an earlier one is passed over.
//
// A channel without listeners lingers, for the next waiter on a busy lock is seldom far. With the
// last channel the connection goes, and both goroutines: a hub at rest costs nothing.
//
// # Classic channels on a Cluster
//
// Every node passes on what was published at any other. So the hub stays with the master that it has while
// that works, also over a rest, and takes another master at random after each failure. A master that is cut
// off from the others answers pings, but gets nothing from them. If they have given its slots to a replica,
// the client's map of the Cluster shows that, and the hub looks at this map with each ping. A master that is
// cut off and has no replica is not noticed: waiters elsewhere learn of a hand-over by their own requests.
//
// # Sharded channels
//
// A classic PUBLISH goes to every node of a Cluster. Redis 7 and Valkey also have sharded channels: each
// belongs to the slot of its name, and SPUBLISH tells only those nodes that have the slot. A sharded hub has
// an owner and a reader as above for each master that has channels with listeners. A hub of classic channels
// is the same with one node. A channel that has no node yet has a goroutine that looks for it.
//
// A channel loses its node in four ways:
//   - The server unsubscribes it, since the slot has left that server.
//   - The server refuses it by an error (MOVED, CLUSTERDOWN, NOPERM).
//   - The connection fails, and the slot has another master by then.
//   - The client's map of the Cluster, which is looked at with each ping, has another master.
//
// Then the hub has that map loaded again, and looks for the new node after a pause, which doubles from 20 ms
// to 1 s until the channel is confirmed. One channel that is refused disturbs no other.
//
// An error does not name the command that it is the reply to. The server answers in order, so the error is
// the reply to the first command that has none. A reply that comes before its turn says that those before it
// were lost.
//
// # Dead connections
//
// A connection can be dead without an error (a cable pulled, a frozen server), so the owner pings. It
// replaces a connection on which nothing at all has arrived for two intervals, as it does one that failed.
package pubsub

// Package pubsub wakes waiters by messages. A [Hub] keeps one subscription connection for any number of
// channels and listeners, and passes each message on to the listeners of its channel. On a Cluster, that
// connection leads to any master that works ([NewClusterHub]). For a Cluster's sharded channels, the hub
// keeps a connection to each master that has some of them ([NewShardedHub]).
//
// # Never losing a wake-up
//
// Redis does not keep messages for clients that are not subscribed at that moment. So a listener has to read
// the present state from its server whenever its subscription may have had a gap. [Subscription.Take] then
// reports resubscribed:
//   - after the server has confirmed the channel, for the first time, after a reconnect, or at a new server;
//   - at once, if the channel is already confirmed when the listener subscribes;
//   - after messages were dropped, because the listener did not take them.
//
// A listener misses no change if it reads the state each time that Take reports resubscribed, and acts on
// each message.
//
// # How it works
//
// One goroutine, the owner, dials, writes all commands and closes the connection. No caller waits for the
// owner, because go-redis dials inside its commands, and a dial may take many seconds. Channels that were
// subscribed to while the owner was busy share one SUBSCRIBE. A second goroutine, the reader, receives
// messages and replies. The server replies in the order of the commands, so the hub keeps a list of the
// commands without a reply. A channel is confirmed by the reply to its last SUBSCRIBE. A reply to an earlier
// SUBSCRIBE is ignored.
//
// A channel without listeners stays subscribed for a moment (see [Options.Linger]), because a busy lock soon
// has another waiter. When the last channel is unsubscribed, the connection is closed and both goroutines
// end. So an idle hub costs nothing.
//
// # Classic channels on a Cluster
//
// Every node of a Cluster forwards each message to all other nodes. So the hub stays with one master while
// that master works, even if the hub was idle, and chooses another master at random after each failure. A
// master that is cut off from the other nodes answers pings, but does not get their messages. If the Cluster
// has given the slots of such a master to a replica, the client's map of the Cluster shows this, and the hub
// looks at the map with each ping. If the master has no replica, the hub does not notice the failure. Waiters
// then find out about a hand-over only by their own requests.
//
// # Sharded channels
//
// A classic PUBLISH goes to every node of a Cluster. Redis 7 and Valkey also have sharded channels. A sharded
// channel belongs to the slot of its name, and SPUBLISH goes only to the nodes that have the slot. A sharded
// hub has an owner and a reader, as above, for each master that has channels with listeners. A hub of classic
// channels works in the same way, with one node. While a channel has no node, a goroutine looks for one.
//
// A channel loses its node in four cases:
//   - The server unsubscribes the channel, because the slot has left that server.
//   - The server refuses the channel with an error (MOVED, CLUSTERDOWN, NOPERM).
//   - The connection fails, and the slot has another master by then.
//   - The client's map of the Cluster, which the hub looks at with each ping, has another master.
//
// In the last case, the hub moves the channel at once. In the other cases, it makes the client load the map
// again, and looks for the new node after a pause. The pause doubles from 20 ms to 1 s until the channel is
// confirmed. A refused channel does not disturb other channels.
//
// An error does not name the command to which it is the reply. The server replies in order, so the error is
// the reply to the first command without a reply. If a later command gets its reply first, the replies to
// earlier commands were lost.
//
// # Dead connections
//
// A connection can be dead without an error, for example if a cable was pulled or the server is frozen. So
// the owner sends pings. If nothing has arrived on a connection for two intervals, the owner replaces the
// connection, as it does after an error.
package pubsub

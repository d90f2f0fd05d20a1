// Package pubsub wakes waiters by messages. A [Hub] keeps one subscription connection for any number of
// channels and listeners, and passes each message on to the listeners of the message's channel. On a Cluster,
// the connection leads to any master that works ([NewClusterHub]). For sharded channels of a Cluster, the hub
// keeps a connection to each master that has some of these channels ([NewShardedHub]).
//
// # Never losing a wake-up
//
// Redis does not keep messages. A client that is not subscribed when a message is published never gets this
// message. So a listener must read the present state from its server whenever it may have missed messages. In
// these cases, [Subscription.Take] reports resubscribed:
//   - after the server has confirmed the channel, for the first time, after a reconnect, or at a new server;
//   - at once, if the channel is already confirmed when the listener subscribes;
//   - after messages were dropped, because the listener did not take them.
//
// A listener misses no change if it acts on each message, and reads the state each time that Take reports
// resubscribed.
//
// # How it works
//
// One goroutine, the owner, dials, writes all commands and closes the connection. Subscribe does not wait for
// the owner, because go-redis dials inside its commands, and a dial may take many seconds. Channels that were
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
// Each node of a Cluster forwards the messages that are published there to all other nodes. So one connection
// to any master is enough. The hub stays with one master while that master works, even if the hub has been
// idle meanwhile. After each failure, the hub chooses another master at random.
//
// A master that is cut off from the other nodes answers pings, but does not get their messages. If the
// Cluster has given the slots of such a master to a replica, the client's map of the Cluster shows the new
// master. The hub looks at this map with each ping, and then leaves the old master. If the old master has no
// replica, the hub does not notice that this master is cut off. Then waiters notice a hand-over only by their
// own requests.
//
// # Sharded channels
//
// A classic PUBLISH goes to every node of a Cluster. Redis 7 and Valkey also have sharded channels. A sharded
// channel belongs to the slot of its name, and SPUBLISH goes only to the nodes that have the slot. A sharded
// hub has an owner and a reader, as above, for each master that has channels with listeners. A hub of classic
// channels works in the same way, with one node. While the hub does not know the node of a channel, a
// goroutine looks for the node.
//
// The hub has to find the node of a channel again in five cases:
//   - The server unsubscribes the channel, because the slot has left that server.
//   - The server refuses the channel with an error, such as MOVED, CLUSTERDOWN or NOPERM.
//   - The reply to the SUBSCRIBE of the channel is lost (see below).
//   - The connection fails, and then the slot has another master.
//   - The client's map of the Cluster, which the hub looks at with each ping, shows another master.
//
// In the last case, the hub moves the channel at once. In the other cases, the hub makes the client load the
// map again, and looks for the node after a pause. Until the channel is confirmed, the pause doubles each
// time, from about 20 ms to 1 s at most. A refused channel does not disturb other channels.
//
// An error does not name the command to which it is the reply. The server replies in order, so the error is
// the reply to the first command that has no reply yet. If a later command gets its reply first, the replies
// to the earlier commands were lost, and the hub treats these commands as refused.
//
// # Dead connections
//
// A connection can be dead without an error, for example if a cable was pulled or the server is frozen. So
// the owner sends pings. If nothing has arrived on a connection for two ping intervals
// ([Options.PingInterval]), the owner replaces the connection, as it does after an error.
package pubsub

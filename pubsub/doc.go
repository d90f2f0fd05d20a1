// Package pubsub wakes waiters by message: a [Hub] keeps one subscription connection, whatever
// the number of channels and of those who listen to them, and fans what arrives out by channel.
//
// # Never losing a wake-up
//
// Redis forgets a message that nobody was subscribed to at that moment, so a listener has to ask
// its server for the present state whenever its subscription may have had a gap. The hub says when:
// [Subscription.Take] reports resubscribed after each confirmation of the channel by the server (the
// first one, and one after each reconnect), at once for a channel that is confirmed already, and when
// messages were dropped because nobody took them. Whoever asks after each resubscribed, and
// acts on each message, knows everything that was published to the channel, or asked later than that.
//
// # How it works
//
// One goroutine, the owner, dials, writes all commands and closes; no caller ever waits for it, since go-redis
// dials inside its commands and may take many seconds. What was asked for while it was busy goes
// out as one SUBSCRIBE. A second goroutine reads. It confirms a channel by the reply to the last
// command about it: the server answers in the order of the commands, so replies still to come
// are counted by channel, and a late reply to an earlier SUBSCRIBE or UNSUBSCRIBE is passed over.
//
// A channel that nobody listens to any more lingers, for the next waiter on a busy lock is seldom far. With the
// last channel the connection goes, and both goroutines: a hub at rest costs nothing.
//
// A connection can be dead without an error (a cable pulled, a frozen server), so the owner pings, and replaces
// a connection on which nothing at all has arrived for two intervals, as it does one that failed.
package pubsub

// Package inbox is where the grants of a session's waiters arrive: on the session's own channels in Redis. A
// script that hands something to the first waiter in a queue tells that waiter's session.
//
// Begin with [Attempt], which is what waits. By classic pub/sub a session has one channel. By sharded pub/sub
// it has one for each lock that it waits for, in the slot of that lock (an ear). An ear is closed when no
// attempt has needed it for a while. The attempt's queue entry says which channel to use (line.lua, which is
// the part of waiting that scripts share).
//
// An inbox keeps no order and judges no message: the queue is in Redis, and an attempt knows by its nonce
// what Redis said.
package inbox

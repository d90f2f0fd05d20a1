// Package wire sends one request to one server, or to the master of a Cluster that has the key, and says how
// that ended. It knows scripts, not locks.
//
// A [Request] calls a [Script] by its digest, and in full where the server does not know it. [Link.Call]
// sends copies of a request until one is answered. What an error means for the request is decided in one
// place, [Judge]. Where many goroutines send requests at one instant, these share pipelines (batch.go).
// [Link.WaitReplicas] asks for replicas (replicas.go). A [Clock] estimates Redis' clock, by which late
// copies have expired.
//
// Invariants (docs/design.md): go-redis never sends a request again by itself. Each
// request ends with an answer or an error, even if a hook of the client panics. A pipeline never waits for
// two servers. A request that was sent is not interrupted, as its outcome would be unknown.
//
// Begin with Link in link.go.
package wire

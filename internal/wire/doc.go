// Package wire sends requests to a server, or to the master of a Cluster that has the key, and reports how
// each request ended. It runs scripts, but has no code that is specific to locks.
//
// A [Request] calls a [Script] by its digest, or with its full text if the server does not know the script.
// [Link.Call] sends copies of a request until one is answered. [Judge] alone decides the meaning of an error.
// If many goroutines send requests at the same time, the requests share pipelines (batch.go).
// [Link.WaitReplicas] waits until replicas have a lock (replicas.go). A [Clock] estimates the clock of Redis.
// Each request for a lock carries a deadline in Redis time, after which Redis refuses copies of the request.
//
// Invariants (docs/design.md): go-redis never sends a request again by itself. Each request ends with a reply
// or an error, even if a hook of the client panics. A pipeline never waits for two servers. Lockline does not
// interrupt a request that was sent, because its outcome would be unknown. Only the client's own timeouts and
// deadlines do (reading.go).
//
// Begin with Link in link.go.
package wire

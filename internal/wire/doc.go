// Package wire sends requests to Redis, and reports how each request ended. On a Cluster, each request goes
// to the master that has the keys of the request. The package does not depend on the kinds of locks.
//
// A [Request] calls a [Script] by its digest, or with its full text if the server does not know the script.
// [Link.Call] sends a request, and may send further copies after a failure. [Judge] decides whether a failed
// request may have run, and whether to send it again. If many goroutines send requests at the same time, the
// requests share pipelines (batch.go). [Link.WaitReplicas] waits until replicas have a hold (replicas.go). A
// [Clock] estimates the clock of Redis. With this estimate, a session gives each request for a grant a
// deadline in Redis time, after which the script refuses all copies of the request.
//
// Invariants (docs/design.md): go-redis does not send a request again by itself if the request may have run.
// Each request ends with a reply or an error, even if a hook of the client panics. If the server of a request
// is known, the request never shares a pipeline with requests to other servers. Lockline does not interrupt a
// request that was sent, because the outcome of the request would be unknown. Only go-redis interrupts
// requests, at its timeouts and at deadlines of contexts (reading.go).
//
// Begin with Link in link.go.
package wire

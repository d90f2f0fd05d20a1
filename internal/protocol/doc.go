// Package protocol has the data that sessions and scripts exchange: the names of keys, the replies of
// scripts, the validity of requests and leases, and the state of a lock. It starts no goroutine and sends no
// request. Package wire sends the requests.
//
// Begin with Answer in answer.go, which is the reply to a request for a lock.
//
//	keys.go    names of keys, requests for them, and valid names and prefixes
//	answer.go  replies of the lock scripts, and for how long requests and leases are valid
//	state.go   the result of Inspect
//	info.go    holder info
//
// This package serves some invariants of docs/design.md. A request for a lock is void when its Patience has
// passed. A hold ends before its lease does (Valid). Tokens are numbers that Lua represents exactly (Token).
// All keys of a lock are in the same slot (Keys).
package protocol

// Package protocol is what a session and the scripts in Redis say to each other. It has the names of keys,
// the replies of scripts, the validity of requests and leases, and a lock's state. It runs no goroutine and
// sends nothing: package wire does.
//
// Begin with Answer in answer.go, the reply to a request for a lock.
//
//	keys.go    the names of a lock's keys, requests for them, and which names and prefixes are refused
//	answer.go  what a lock script's reply means, and how long a request is welcome and a lease valid
//	state.go   what Inspect shows
//
// Invariants kept here (docs/design.md): a copy of a request that arrives after its Patience
// changes nothing, and a hold ends before its lease does (Valid). Tokens are numbers that Lua holds exactly
// (Token), and all keys of a lock share a slot (Keys).
package protocol

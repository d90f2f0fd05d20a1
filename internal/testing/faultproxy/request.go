package faultproxy

import (
	"slices"
	"strings"
	"time"
)

// A Request is one command of a client.
type Request struct {
	Seq  int // unique in its proxy, in order of arrival
	Conn int // number of the client connection on which it came
	At   time.Time
	Args []string // the command and its arguments
}

// Is reports whether the command is one of names, in any case.
func (r *Request) Is(names ...string) bool {
	return len(r.Args) > 0 && slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, r.Args[0])
	})
}

// Script returns the SHA of an EVALSHA, the body of an EVAL, or the name of an FCALL. For other commands, it
// returns "".
func (r *Request) Script() string {
	if len(r.Args) > 1 && r.Is("EVALSHA", "EVAL", "FCALL", "EVALSHA_RO", "EVAL_RO", "FCALL_RO") {
		return r.Args[1]
	}
	return ""
}

// A Message is one pub/sub message that was delivered to a client.
type Message struct {
	Conn    int
	At      time.Time
	Kind    string // message, pmessage or smessage
	Channel string
	Payload string
}

// An Action decides about a request and its reply.
//
// As with TCP, a connection loses everything from some byte on, and never a piece in the middle. So an action
// also affects the later requests of the client on that connection, for example of the same pipeline:
//   - after Pass, they are forwarded;
//   - after SwallowReply, they are executed, but their replies are lost;
//   - after any other action, they are lost, and the proxy does not record them.
//
// Replies to earlier requests are still delivered, even before a cut.
type Action int

const (
	// Pass forwards the request and its reply.
	Pass Action = iota
	// DropAndCut loses the request and closes the client's connection.
	DropAndCut
	// CutReply lets the server execute the request, waits for its reply, loses that, and closes the client's
	// connection.
	CutReply
	// Swallow loses the request. The connection stays open, and the client waits.
	Swallow
	// SwallowReply lets the server execute the request and loses its reply. The connection stays open, and
	// the client waits.
	SwallowReply
	// Hold does the same as Swallow, but keeps the request for [Proxy.Release].
	Hold
)

package faultproxy

import (
	"slices"
	"strings"
	"time"
)

// A Request is one command of a client.
type Request struct {
	Seq  int // number of the request, in order of arrival at the proxy
	Conn int // number of the client connection
	At   time.Time
	Args []string // the command and its arguments
}

// Is reports whether the command is one of names. Upper and lower case do not matter.
func (r *Request) Is(names ...string) bool {
	return len(r.Args) > 0 && slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, r.Args[0])
	})
}

// Script returns the SHA of an EVALSHA, the body of an EVAL, or the function name of an FCALL. For other
// commands, it returns "".
func (r *Request) Script() string {
	if len(r.Args) > 1 && r.Is("EVALSHA", "EVAL", "FCALL", "EVALSHA_RO", "EVAL_RO", "FCALL_RO") {
		return r.Args[1]
	}
	return ""
}

// A Message is one pub/sub message that the proxy has delivered to a client.
type Message struct {
	Conn    int
	At      time.Time
	Kind    string // message, pmessage or smessage
	Channel string
	Payload string
}

// An Action decides whether a request and its reply are delivered.
//
// As with TCP, a connection loses all data from some byte on, and never a piece in the middle. So an action
// also affects the requests that follow on the same connection, for example in the same pipeline:
//   - After Pass, the following requests are forwarded.
//   - After SwallowReply, the server executes the following requests, but their replies are lost.
//   - After any other action, the following requests are lost, and the proxy does not record them.
//
// The proxy still delivers the replies to earlier requests, even if the action then cuts the connection.
type Action int

const (
	// Pass forwards the request and its reply.
	Pass Action = iota
	// DropAndCut loses the request and closes the client's connection.
	DropAndCut
	// CutReply lets the server execute the request. When the reply comes, the proxy loses the reply and
	// closes the client's connection.
	CutReply
	// Swallow loses the request. The connection stays open, and the client waits.
	Swallow
	// SwallowReply lets the server execute the request and loses its reply. The connection stays open, and
	// the client waits.
	SwallowReply
	// Hold does the same as Swallow, but keeps the request for [Proxy.Release].
	Hold
)

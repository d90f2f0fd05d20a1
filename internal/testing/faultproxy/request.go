package faultproxy

import (
	"slices"
	"strings"
	"time"
)

// Request is one command as a client sent it.
type Request struct {
	Seq  int // unique in its proxy, in order of arrival
	Conn int // the client connection it came on
	At   time.Time
	Args []string // the command and its arguments
}

// Is reports whether the command is one of names, in any case.
func (r *Request) Is(names ...string) bool {
	return len(r.Args) > 0 && slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, r.Args[0])
	})
}

// Script returns what the request runs: the SHA of an EVALSHA, the body of an
// EVAL, the name of an FCALL; otherwise "".
func (r *Request) Script() string {
	if len(r.Args) > 1 && r.Is("EVALSHA", "EVAL", "FCALL", "EVALSHA_RO", "EVAL_RO", "FCALL_RO") {
		return r.Args[1]
	}
	return ""
}

// Message is one pub/sub message that was delivered to a client.
type Message struct {
	Conn    int
	At      time.Time
	Kind    string // message, pmessage or smessage
	Channel string
	Payload string
}

// Action is what becomes of a request.
//
// Like TCP, a connection loses everything from some byte on, never a piece
// in the middle. After any action but Pass and SwallowReply, what the client
// sends later on that connection, in the same pipeline for example, is lost
// unseen. After SwallowReply, it is executed, and its replies are lost.
// Replies to earlier requests are still delivered, before a cut, too.
type Action int

const (
	// Pass forwards the request and its reply.
	Pass Action = iota
	// DropAndCut loses the request and closes the client's connection.
	DropAndCut
	// CutReply lets the server execute the request, waits for its reply, loses that, and closes the client's
	// connection.
	CutReply
	// Swallow loses the request; the connection stays open and the client waits.
	Swallow
	// SwallowReply lets the server execute the request and loses its reply; the connection stays open and the
	// client waits.
	SwallowReply
	// Hold is Swallow, but keeps the request for [Proxy.Release].
	Hold
)

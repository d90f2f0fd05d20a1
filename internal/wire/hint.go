package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// hints say what is wrong with a client whose requests are answered with errors that have these words.
var hints = []struct{ words, hint string }{
	{"moved ", "the server is a node of a Cluster, and this client did not go where it says: " +
		"use redis.NewClusterClient"},
	{"cluster support disabled", "the server is no node of a Cluster: use redis.NewClient"},
	{"unknown command 'evalsha'", "the server runs no scripts; a Sentinel runs none, " +
		"and knows where the master is: use redis.NewFailoverClient"},
	{"readonly you can't write", "the server is a replica: name the master, or use redis.NewFailoverClient"},
	{"unauthenticated", "the server wants a password, and the client has given none or a wrong one"},
}

// Hint is what a user may have done wrong, in parentheses; "" where the error does not tell.
func Hint(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		switch {
		case errors.As(err, new(tls.RecordHeaderError)):
			return " (the server does not speak TLS: drop the client's TLSConfig)"
		case errors.As(err, new(*unshaken)):
			return " (the TLS handshake was not answered within DialTimeout, DialerRetries times: " +
				"does the server speak TLS? If not, drop the client's TLSConfig)"
		case errors.As(err, new(*hungUp)):
			return " (the server hung up before it answered anything: " +
				"if it speaks TLS, give the client a TLSConfig; else maxclients may be reached)"
		}
		return ""
	}
	text := strings.ToLower(strings.ReplaceAll(reply.Error(), "`", "'")) // Redis 6 quotes with backticks
	for _, h := range hints {
		if strings.Contains(text, h.words) {
			return " (" + h.hint + ")"
		}
	}
	return ""
}

// unshaken is the error of a request for which no connection was made, since no TLS handshake was answered in
// time. So does Redis 7.0 if it does not speak TLS: it waits for the end of a line.
type unshaken struct{ error }

func (e *unshaken) Unwrap() error { return e.error }

// hungUp is the error of a request whose connection the server has closed, though it never answered one.
type hungUp struct{ error }

func (e *hungUp) Unwrap() error { return e.error }

// Explain marks the error of a request with ctx where client and server may not agree about TLS, for Hint and
// Judge. secure: the client speaks it. answered: the server has answered a request before.
func Explain(ctx context.Context, err error, secure, answered bool) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case secure && is(context.DeadlineExceeded) && ctx.Err() == nil && !errors.As(err, new(*net.OpError)):
		// The deadline is that of go-redis's dialer. Those of sockets come as a *net.OpError.
		return &unshaken{err}
	case !secure && !answered && (is(io.EOF) || is(syscall.ECONNRESET) || is(syscall.EPIPE)):
		return &hungUp{err}
	}
	return err
}

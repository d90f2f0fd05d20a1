package wire

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Verdict says what an error of a request means for the request.
type Verdict struct {
	Unknown   bool // it may have run, or may run yet
	Resend    bool // sending it again at once makes sense
	Transient bool // a waiter should ask again later
	Refused   bool // it did nothing, and will be refused until rights, or a key of another type, are mended
}

// Unsettled: what the request was to give back may not be, and asking again later makes sense.
func (v Verdict) Unsettled() bool { return v.Unknown || v.Transient }

// Again: a release that has failed so is to be sent again later. One that was refused is not while its
// session closes, which would wait for what only an operator can mend.
func (v Verdict) Again(closing <-chan struct{}) bool {
	if v.Refused {
		select {
		case <-closing:
			return false
		default:
			return true
		}
	}
	return v.Unsettled()
}

// inScript is what Redis before 7 puts before the error of a command in a script, whose code is not the first
// word then.
var inScript = regexp.MustCompile(`^ERR Error running script \(call to \w+\): (@user_script: ?\d+: )+-?`)

// tlsRefused are handshakes that fail until someone changes a setting. Sentinels' clients have them as text
// alone.
var tlsRefused = regexp.MustCompile(`x509: |tls: .*(certificate|handshake)`)

func Judge(err error) Verdict {
	var panicked *panicError
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, new(*misdirected)):
		return Verdict{Refused: true}
	case errors.As(err, &panicked):
		// Whatever panics is likely to do so again, and to the user that is a mistake, not an outage.
		return Verdict{Unknown: true, Resend: panicked.shared, Transient: panicked.shared}
	case errors.As(err, &reply):
		// The server refused it. Scripts read, and so fail, before they write; only a
		// PUBLISH that an ACL forbids fails after the lock was freed.
		msg := inScript.ReplaceAllString(reply.Error(), "")
		for _, p := range [...]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ",
			"NOREPLICAS", "MISCONF", "MOVED ", "ASK ", "ERR max number of clients"} {
			if strings.HasPrefix(msg, p) {
				return Verdict{Resend: true, Transient: true}
			}
		}
		if strings.HasPrefix(strings.TrimPrefix(msg, "ERR "), "Script attempted to access a non local key") {
			// Its slot is on the move, and it has deleted a key that it needed again.
			return Verdict{Unknown: true, Resend: true, Transient: true}
		}
		return Verdict{Refused: true}
	case errors.Is(err, ErrUnsent), errors.Is(err, redis.ErrClosed), errors.As(err, new(Unexpected)),
		tlsRefused.MatchString(err.Error()):
		return Verdict{}
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		// It never left, and go-redis has retried the dial already.
		return Verdict{Transient: true}
	case errors.As(err, new(*unshaken)):
		// go-redis has retried the dial, for long. A hook's error may look like this one, of what has run.
		return Verdict{Unknown: true, Transient: true}
	default:
		return Verdict{Unknown: true, Resend: true, Transient: true}
	}
}

// Unexpected is a reply that no script gives unless its keys were changed by hand.
type Unexpected string

func (reply Unexpected) Error() string { return fmt.Sprintf("unexpected reply %q", string(reply)) }

// misdirected is the error of a request that a node of a Cluster has sent away, to a client that does not
// follow.
type misdirected struct{ error }

func (e *misdirected) Unwrap() error { return e.error }

// A panicError is the error of a request under which the client, or one of its hooks, panicked.
type panicError struct {
	value  any
	shared bool // by all requests of a pipeline, of which another one may have caused it
}

// Error has the value, which is not unwrapped: if it is an error, it is none about the lock.
func (e *panicError) Error() string { return fmt.Sprintf("the client panicked: %v", e.value) }

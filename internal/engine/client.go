package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
)

// Client is what a session needs of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

func checkClient(c Client) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("lockline: NewSession: the client is nil (%T)", c)
	}
	switch c.(type) {
	case *redis.Ring:
		return errors.New("lockline: NewSession: a *redis.Ring moves keys to another server when one fails its pings, " +
			"so two owners could hold one lock; use one session for each server (and RedLock over them), or a Cluster")
	}
	if fmt.Sprintf("%T", c) == "*redis.AutoPipeliner" { // by name: go-redis before 9.22 has none
		return errors.New("lockline: NewSession: a *redis.AutoPipeliner makes a holder wait for a batch to fill; " +
			"pass the client that it wraps")
	}
	return nil
}

// pipeliner is one server's entrance for a batch. Comparable: it also names the server.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// server finds the server of a key, so that a batch never waits for two of them:
// a cluster pipeline returns when its slowest node does.
func (s *Session) server(key string) (to pipeliner) {
	to = s.client
	if c, ok := to.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		defer s.survive(new(error))
		if node, err := c.MasterForKey(s.ctx, key); err == nil {
			to = node
		}
	}
	return to
}

// A panicError is the error of a request under which the client, or one of its hooks, panicked.
type panicError struct {
	value  any
	shared bool // by all requests of a pipeline, of which another one may have caused it
}

// Error has the value, which is not unwrapped: if it is an error, it is none about the lock.
func (e *panicError) Error() string { return fmt.Sprintf("the client panicked: %v", e.value) }

// survive, deferred around a call of the client, makes a panic in it an error: one that left the engine
// would leave what it was called for unfinished, or end the process.
func (s *Session) survive(err *error) {
	if p := recover(); p != nil {
		*err = s.panicked(p)
	}
}

// panicked logs a panic of the client, while its stack is there.
func (s *Session) panicked(value any) *panicError {
	stack := string(debug.Stack())
	contain.Run(s.Logger, "lockline: the logger", func() {
		s.Logger.Error("lockline: the client panicked", "panic", value, "stack", stack)
	})
	return &panicError{value: value}
}

// A verdict says what an error of a request means for the request.
type verdict struct {
	unknown   bool // it may have run, or may run yet
	resend    bool // sending it again at once makes sense
	transient bool // a waiter should ask again later
}

// unsettled: what the request was to give back may not be, and asking again later makes sense.
func (v verdict) unsettled() bool { return v.unknown || v.transient }

// inScript is what Redis before 7 puts before the error of a command in a script, whose code is not the first word then.
var inScript = regexp.MustCompile(`^ERR Error running script \(call to \w+\): (@user_script: ?\d+: )+-?`)

func judge(err error) verdict {
	var panicked *panicError
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &panicked):
		// Whatever panics is likely to do so again, and to the user that is a mistake, not an outage.
		return verdict{unknown: true, resend: panicked.shared, transient: panicked.shared}
	case errors.As(err, &reply):
		// The server refused it. Scripts read, and so fail, before they write; only a
		// PUBLISH that an ACL forbids fails after the lock was freed.
		msg := inScript.ReplaceAllString(reply.Error(), "")
		for _, p := range [...]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "NOREPLICAS", "MISCONF", "MOVED", "ASK", "ERR max number of clients"} {
			if strings.HasPrefix(msg, p) {
				return verdict{resend: true, transient: true}
			}
		}
		if strings.HasPrefix(strings.TrimPrefix(msg, "ERR "), "Script attempted to access a non local key") {
			// Its slot is on the move, and it has deleted a key that it needed again.
			return verdict{unknown: true, resend: true, transient: true}
		}
		return verdict{}
	case errors.Is(err, redis.ErrClosed), errors.As(err, new(unexpected)):
		return verdict{}
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		// It never left, and go-redis has retried the dial already.
		return verdict{transient: true}
	default:
		return verdict{unknown: true, resend: true, transient: true}
	}
}

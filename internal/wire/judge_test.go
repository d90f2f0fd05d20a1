package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error that a server answered with.
type reply string

func (e reply) Error() string { return string(e) }
func (reply) RedisError()     {}

func dialing(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

func TestErrorsAreJudgedByWhatTheyMeanForTheRequest(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err  error
		want Verdict
	}{
		{io.EOF, Verdict{Unknown: true, Resend: true, Transient: true}},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), Verdict{Unknown: true, Resend: true, Transient: true}},
		{context.DeadlineExceeded, Verdict{Unknown: true, Resend: true, Transient: true}},
		{dial, Verdict{Transient: true}},
		{fmt.Errorf("wrapped: %w", dial), Verdict{Transient: true}},
		{Explain(t.Context(), context.DeadlineExceeded, true, true), Verdict{Unknown: true, Transient: true}},
		{redis.ErrPoolTimeout, Verdict{Transient: true}},
		{redis.ErrClosed, Verdict{}},
		{fmt.Errorf("wrapped: %w", x509.UnknownAuthorityError{}), Verdict{}},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(116)}, Verdict{}},
		{&net.OpError{Op: "dial", Err: errors.New("tls: first record does not look like a TLS handshake")},
			Verdict{}},
		{dialing(&net.AddrError{Err: "too many colons in address", Addr: "redis://a:6379"}), Verdict{}},
		{dialing(&net.ParseError{Type: "IP address", Text: "a"}), Verdict{}},
		{dialing(net.UnknownNetworkError("tcpx")), Verdict{}},
		{dialing(&net.DNSError{Err: "unknown port", Name: "tcp///a", IsNotFound: true}), Verdict{}},
		{errors.New("dial tcp: address localhost: missing port in address"), Verdict{}}, // of a Sentinel
		{dialing(&net.AddrError{Err: "no suitable address found", Addr: "::1"}), Verdict{Transient: true}},
		{dialing(&net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}), Verdict{Transient: true}},
		{marked(reply("MOVED 866 127.0.0.1:7001"), errMisdirected), Verdict{Refused: true}},
		{Unexpected("X"), Verdict{}},
		{fmt.Errorf("wrapped: %w", &panicError{value: io.EOF}), Verdict{Unknown: true}},
		{&panicError{value: io.EOF, shared: true}, Verdict{Unknown: true, Resend: true, Transient: true}},
		{reply("LOADING Redis is loading the dataset in memory"), Verdict{Resend: true, Transient: true}},
		{reply("READONLY You can't write against a read only replica."),
			Verdict{Resend: true, Transient: true}},
		{reply("WRONGTYPE Operation against a key"), Verdict{Refused: true}},
		{reply("ERR Script attempted to access a non local key in a cluster node script: 1, " +
			"on @user_script:1."), Verdict{Unknown: true, Resend: true, Transient: true}},
		// Redis 6.2, about an error in a script:
		{reply("ERR Error running script (call to f_0a9f): @user_script:149: @user_script: 149: " +
			"-READONLY You can't write against a read only replica."),
			Verdict{Resend: true, Transient: true}},
		{reply("ERR Error running script (call to f_0a9f): @user_script:1: @user_script: 1: " +
			"-NOREPLICAS Not enough good replicas to write."), Verdict{Resend: true, Transient: true}},
		{reply("ERR Error running script (call to f_0a9f): @user_script:1: @user_script: 1: " +
			"Lua script attempted to access a non local key in a cluster node"),
			Verdict{Unknown: true, Resend: true, Transient: true}},
		// The Cluster is down, and cluster-allow-reads-when-down is yes.
		{reply("ERR Error running script (call to f_0a9f): @user_script:1: @user_script: 1: " +
			"Lua script attempted to execute a write command while the cluster is down and readonly"),
			Verdict{Resend: true, Transient: true}},
		{reply("ERR Script attempted to execute a write command while the cluster is down and readonly " +
			"script: 1, on @user_script:1."), Verdict{Resend: true, Transient: true}},
		// The server became a replica during a WAIT.
		{reply("UNBLOCKED force unblock from blocking operation, instance state changed " +
			"(master -> replica?)"), Verdict{Resend: true, Transient: true}},
		{reply("ERR Error running script (call to f_0a9f): @user_script:1: " +
			"WRONGTYPE Operation against a key"), Verdict{Refused: true}},
		{reply("ERR Error running script (call to f_0a9f): @user_script:1: @user_script: 1: " +
			"-OOM command not allowed"), Verdict{Refused: true}},
		{reply("NOPERM this user has no permissions"), Verdict{Refused: true}},
	} {
		if got := Judge(c.err); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
}

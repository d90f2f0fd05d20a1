package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// redisError is an error that a server answers with.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"MOVED 866 127.0.0.1:7001":                                              "redis.NewClusterClient",
		"ERR This instance has cluster support disabled":                        "redis.NewClient",
		"ERR unknown command 'EVALSHA', with args beginning with: 'x'":          "Sentinel",
		"ERR unknown command `evalsha`, with args beginning with: `x`":          "Sentinel",
		"ERR Protocol error: unauthenticated multibulk length":                  "password",
		"READONLY You can't write against a read only replica.":                 "the server is a replica",
		"NOPERM this user has no permissions to run the 'publish' command":      "operations.md#acl-rules",
		"ERR The user executing the script can't run this command":              "#acl-rules",
		"ERR The user executing the script can't access at least one of":        "#acl-rules",
		"CLUSTERDOWN Hash slot not served":                                      "redis.NewClusterClient",
		"ERR SELECT is not allowed in cluster mode":                             "redis.NewClusterClient",
		"ERR DB index is out of range":                                          "DB in the client's options",
		"OOM command not allowed when used memory > 'maxmemory'.":               "raise maxmemory",
		"WRONGPASS invalid username-password pair or user is disabled.":         "ACL GETUSER",
		"NOAUTH Authentication required.":                                       "has given none",
		"dial tcp 127.0.0.1:6379: connect: connection redisError":               "",
		"LOADING Redis is loading the dataset in memory":                        "",
		"WRONGTYPE Operation against a key holding the wrong kind of value":     "",
		"ERR unknown command 'SPUBLISH', with args beginning with: 'x' 'moved'": "",
	} {
		if got := Hint(redisError(text)); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestTheNameOfAKeyIsNoHint(t *testing.T) {
	err := fmt.Errorf("x: %w", &ValueError{"lockline:r:{moved noauth noperm}", "token", "x", "is no number"})
	if got := Hint(err); got != "" {
		t.Errorf("%q", got)
	}
}

func TestAnAddressThatCannotBeDialedIsExplained(t *testing.T) {
	url := dialing(&net.AddrError{Err: "too many colons in address", Addr: "redis://a:6379"})
	if got := Hint(url); !strings.Contains(got, "redis.ParseURL") {
		t.Errorf("%q", got)
	}
	if got := Hint(dialing(&net.DNSError{Err: "no such host", Name: "a"})); got != "" {
		t.Errorf("%q", got)
	}
}

func TestAnExhaustedPoolIsExplained(t *testing.T) {
	if got := Hint(fmt.Errorf("wrapped: %w", redis.ErrPoolTimeout)); !strings.Contains(got, "PoolSize") {
		t.Errorf("%q", got)
	}
}

// answerHTTP answers every request as an HTTP server does.
func answerHTTP(conn net.Conn) {
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1024))
	_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")
}

func TestAServerThatSpeaksHTTPIsExplainedAndNoOutage(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		var servers sync.WaitGroup
		c := redis.NewClient(&redis.Options{Protocol: protocol, DisableIdentity: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				servers.Go(func() { answerHTTP(theirs) })
				return ours, nil
			}})
		defer servers.Wait()
		defer c.Close()
		l := NewLink(c, Options{Context: t.Context()})
		o := l.Call(t.Context(), copier{NewScript("return 'x'")}, 1, nil)
		if o.Err == nil || Judge(o.Err) != (Verdict{}) || !strings.Contains(Hint(o.Err), "speaks HTTP") {
			t.Errorf("protocol %d: %v%s", protocol, o.Err, Hint(o.Err))
		}
		l.answered.Store(true) // Redis has answered before, so a proxy may be showing an error page
		o = l.Call(t.Context(), copier{NewScript("return 'x'")}, 1, nil)
		if o.Err == nil || !Judge(o.Err).Transient || !strings.Contains(Hint(o.Err), "speaks HTTP") {
			t.Errorf("protocol %d, after an answer: %v%s", protocol, o.Err, Hint(o.Err))
		}
	}
}

func TestTheOneErrorForAllSentinelsIsExplained(t *testing.T) {
	for answer, want := range map[error]string{
		redis.Nil: "MasterName",
		redisError("ERR unknown command 'sentinel', with args beginning with: 'x'"): "redis.NewClient",
		redisError("ERR unknown command `SENTINEL`, with args beginning with: `x`"): "redis.NewClient",
		io.EOF: "",
	} {
		err := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", answer)
		if got := Hint(err); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%v: %q", answer, got)
		}
	}
}

func TestHintsAboutTLS(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	socket := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	dial := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, c := range []struct {
		ctx              context.Context
		err              error
		secure, answered bool
		want             string
	}{
		{t.Context(), context.DeadlineExceeded, true, false, "does the server speak TLS?"},
		{t.Context(), context.DeadlineExceeded, true, true, "does the server speak TLS?"},
		{t.Context(), context.DeadlineExceeded, false, false, ""},
		{ended, context.DeadlineExceeded, true, false, ""},
		{t.Context(), socket, true, false, ""},
		{t.Context(), dial, true, false, ""},
		{t.Context(), tls.RecordHeaderError{}, true, false, "does not speak TLS"},
		{t.Context(), io.EOF, false, false, "give the client a TLSConfig"},
		{t.Context(), reset, false, false, "maxclients may be reached"},
		{t.Context(), io.EOF, false, true, ""},
		{t.Context(), io.EOF, true, false, ""},
		{t.Context(), x509.UnknownAuthorityError{}, true, false, "RootCAs"},
		{t.Context(), redisError("READONLY x"), false, false, ""},
	} {
		err := Explain(c.ctx, c.err, c.secure, c.answered)
		got := Hint(err)
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || !errors.Is(err, c.err) {
			t.Errorf("%v, secure %v, answered %v: %v%s", c.err, c.secure, c.answered, err, got)
		}
	}
	if Explain(t.Context(), nil, true, false) != nil {
		t.Error("success became an error")
	}
}

func TestAClientOfTheZeroValueIsRefused(t *testing.T) {
	for c, want := range map[Client]string{
		&redis.Client{}: "redis.NewClient", &redis.ClusterClient{}: "redis.NewClusterClient",
	} {
		if err := Check(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v", c, err)
		}
	}
}

func TestARefusedCertificateOfTheClientIsExplained(t *testing.T) {
	for text, want := range map[string]string{
		"tls: unknown certificate authority": "tls-ca-cert-file", // TLS 1.3
		"tls: certificate required":          "or wants one",
		"tls: internal error":                "",
	} {
		err := &net.OpError{Op: "remote error", Err: errors.New(text)}
		if got := Hint(err); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%v: %q", err, got)
		}
		if Judge(err).Transient == (want != "") {
			t.Errorf("%v: %+v", err, Judge(err))
		}
	}
}

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/failure"
)

// A Verdict is the meaning of an error for the request that failed.
type Verdict struct {
	Unknown   bool // the request may have run, or may still run
	Resend    bool // sending the request again at once makes sense
	Transient bool // a waiter should send a new request later
	Refused   bool // the server will refuse the request until somebody removes the cause
}

// Unsettled reports whether it makes sense to send the failed request again later.
func (v Verdict) Unsettled() bool { return v.Unknown || v.Transient }

// Again reports whether a failed release should be sent again later. If Redis refused the release, only an
// operator can remove the cause, and a session that is closing does not wait for an operator.
func (v Verdict) Again(closing <-chan struct{}) bool {
	return v.Refused && !Closed(closing) || v.Unsettled()
}

// inScript matches the prefix that Redis before 7 puts before the error of a command in a script. Without the
// prefix, the error begins with its code.
var inScript = regexp.MustCompile(`^ERR Error running script \(call to \w+\): (@user_script: ?\d+: )+-?`)

// nonLocal and whileDown match errors that commands of a script get in a Cluster. In Redis before 7, these
// errors begin with "Lua script".
var (
	nonLocal  = regexp.MustCompile(`^(ERR )?(Lua s|S)cript attempted to access a non local key`)
	whileDown = regexp.MustCompile(`^(ERR )?(Lua s|S)cript attempted to execute .* while the cluster is down`)
)

// replyText returns the text of an error reply. The text begins with its code, even if the error comes from a
// command in a script.
func replyText(reply redis.Error) string {
	text := inScript.ReplaceAllString(reply.Error(), "")
	if whileDown.MatchString(text) { // with cluster-allow-reads-when-down, only writes fail
		return "CLUSTERDOWN " + text
	}
	return text
}

// tlsRefused matches errors of TLS handshakes that fail until somebody changes a setting. A client that finds
// its server by Sentinels returns only the text of these errors.
var tlsRefused = regexp.MustCompile(`x509: |tls: .*(certificate|handshake)`)

// remoteTLS matches errors of TLS handshakes that the server ended because of the client's certificate.
// crypto/tls does not export their type.
var remoteTLS = regexp.MustCompile(`remote error: tls: .*certificate`)

// badAddress matches errors of addresses that no server can have. A client that finds its server by Sentinels
// returns only the text of these errors.
var badAddress = regexp.MustCompile(`address .+: (too many colons|missing port) in address|` +
	`: (unknown|invalid) port|unknown network `)

// notRedis matches the error of go-redis about a reply that an HTTP server gave.
var notRedis = regexp.MustCompile(`redis: .*"HTTP/1\.[01] `)

// unmendable reports whether err is the error of an address to which no dial will succeed. If DNS cannot
// resolve the host name, unmendable returns false, because DNS may resolve the name a moment later, for
// example in Kubernetes.
func unmendable(err error) bool {
	if addr := (*net.AddrError)(nil); errors.As(err, &addr) {
		return addr.Err != "no suitable address" && addr.Err != "no suitable address found"
	}
	return errors.As(err, new(*net.ParseError)) || errors.As(err, new(net.UnknownNetworkError)) ||
		badAddress.MatchString(err.Error())
}

// Judge returns the meaning of an error of a request.
func Judge(err error) Verdict {
	var panicked *panicError
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errMisdirected):
		return Verdict{Refused: true}
	case errors.As(err, &panicked):
		// A panic is a mistake in the program, so a client that panics is likely to panic again. But if
		// another request of the pipeline may have caused the panic, sending this request again makes sense.
		return Verdict{Unknown: true, Resend: panicked.shared, Transient: panicked.shared}
	case errors.As(err, &reply):
		// The server refused the request. Scripts read before they write, so an error usually means that the
		// script has changed nothing. An exception is a PUBLISH that an ACL forbids, because it fails after
		// the lock was freed.
		msg := replyText(reply)
		for _, p := range [...]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ",
			"NOREPLICAS", "MISCONF", "MOVED ", "ASK ", "UNBLOCKED", "ERR max number of clients"} {
			if strings.HasPrefix(msg, p) {
				return Verdict{Resend: true, Transient: true}
			}
		}
		if nonLocal.MatchString(msg) {
			// The slot is being moved, and the script has deleted a key that it needed again.
			return Verdict{Unknown: true, Resend: true, Transient: true}
		}
		return Verdict{Refused: true}
	case errors.Is(err, ErrUnsent), errors.Is(err, redis.ErrClosed), errors.As(err, new(Unexpected)),
		errors.Is(err, errNotRedis), tlsRefused.MatchString(err.Error()), unmendable(err):
		return Verdict{}
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		// The request was never sent. go-redis has already waited for a connection, or has retried the dial.
		return Verdict{Transient: true}
	case errors.Is(err, errUnshaken):
		// Resend is false, because go-redis has retried the dial already. Unknown is true, because a hook may
		// have returned this error after the request had run.
		return Verdict{Unknown: true, Transient: true}
	default:
		return Verdict{Unknown: true, Resend: true, Transient: true}
	}
}

// demoted reports whether a request failed because its server is a replica. In Redis before 7, the error of a
// script does not begin with READONLY (inScript).
func demoted(err error) bool {
	return orphaned(err) || err != nil && strings.Contains(err.Error(), "READONLY You can't write against a")
}

// orphaned reports whether a request failed because its server is a replica that has lost its master.
func orphaned(err error) bool { return Replied(err, "MASTERDOWN ") }

// newParting returns a request after which go-redis closes the connection that carried the request. This is
// usually the connection that was used last.
//
// After the error READONLY, go-redis closes the connection by itself, because the same address may lead to
// the new master by then. After MASTERDOWN, it keeps the connection. But go-redis also closes a connection if
// it cannot parse a reply. So the request is a HELLO for which go-redis expects a number, and the reply to
// HELLO is never a number. Every user may send HELLO.
func newParting() redis.Cmder { return redis.NewIntCmd(context.Background(), "hello") }

// Unexpected is a reply that a script gives only if its keys were changed by hand.
type Unexpected string

func (reply Unexpected) Error() string { return fmt.Sprintf("unexpected reply %q", string(reply)) }

// A panicError is the error of a request during which the client, or one of its hooks, panicked.
type panicError struct {
	value  any
	shared bool // another request of the same pipeline may have caused the panic
}

// Error includes the value of the panic. A panicError has no method Unwrap, because an error with which the
// client panics does not describe the state of the lock.
func (e *panicError) Error() string { return fmt.Sprintf("the client panicked: %v", e.value) }

// ValueError is the error of a script that has found a value which Lockline did not write, in the field Field
// of the key Key. If the key is not a hash, Field is "". Why is the reason that the script gave (failDamaged
// and failForeign in base.lua).
type ValueError struct{ Key, Field, Value, Why string }

// RedisError marks a ValueError as a reply of the server. The reply will be the same until somebody repairs
// the key.
func (e *ValueError) RedisError() {}

func (e *ValueError) Error() string {
	if what, ok := strings.CutPrefix(e.Why, "foreign "); ok {
		kind, lacks, _ := strings.Cut(what, " ")
		return fmt.Sprintf("the key %q is not a %s of this version of Lockline: it has the field %q and no "+
			"field %q; an older version of Lockline or another program writes it: stop that program and "+
			"delete the key (redis-cli DEL), or use another prefix", e.Key, kind, e.Field, lacks)
	}
	field := ""
	if e.Field != "" {
		field = fmt.Sprintf(" in its field %q", e.Field)
	}
	return fmt.Sprintf("the key %q has %q%s, %s, which Lockline did not write; delete that key, "+
		"but the key of a lock only once the lock is free or was freed by force: "+
		"later tokens continue from the server's clock",
		e.Key, e.Value, field, e.Why)
}

// refusal decodes an error that a script of Lockline raised. It returns nil and any other error unchanged.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), "LOCKLINE ")
	text, _, _ = strings.Cut(text, " ")
	words := strings.Split(text, ",")
	if !ok || len(words) != 4 {
		return err
	}
	for i := range words {
		words[i], _ = url.PathUnescape(strings.ReplaceAll(words[i], "=", "%"))
	}
	return &ValueError{words[0], words[1], words[2], words[3]}
}

const giveRights = "give the user the rights of docs/operations.md#acl-rules" + RunDoctor

// RunDoctor is the part of a hint that recommends lockline doctor. The doctor itself leaves this part out.
const RunDoctor = ": lockline doctor, run as that user, shows which one is missing"

// hints has advice about error replies of Redis. words is a part of the error's text, in lower case. If
// several hints match an error, the first of them counts.
var hints = []struct{ words, hint string }{
	{"moved ", "the server is a node of a Cluster, and this client did not go where it says: " +
		"use redis.NewClusterClient"},
	{"cluster support disabled", "the server is no node of a Cluster: use redis.NewClient"},
	{"clusterdown", "the server is a node of a Cluster that does not cover all slots: redis-cli --cluster " +
		"check shows which; the client of a Cluster is redis.NewClusterClient"},
	{"select is not allowed in cluster mode", "a node of a Cluster has only the DB 0: " +
		"use redis.NewClusterClient"},
	{"db index is out of range", "the server has no database of that number: " +
		"it is the DB in the client's options"},
	{"unknown command 'evalsha'", "the server runs no scripts; a Sentinel runs none, " +
		"and knows where the master is: use redis.NewFailoverClient"},
	{"readonly you can't write", "the server is a replica: name the master, or use redis.NewFailoverClient"},
	{"noperm", giveRights},
	{"acl failure in script", giveRights}, // the text of Redis 8 and Valkey
	{"the user executing the script can't", "so Redis 7.0 says that a right is missing: " + giveRights},
	{"unauthenticated", "the server wants a password, and the client has given none or a wrong one"},
	{"wrongpass", "the client's user or password is wrong, or is not valid any more: " +
		"ACL GETUSER on the server shows whether the user is on"},
	{"noauth", "the server wants a password, and the client has given none"},
	{"oom command not allowed", "Redis is full: raise maxmemory, or remove other data"},
}

// sentinelHints are hints about errors of Sentinels. go-redis joins the errors of all Sentinels into one
// text.
var sentinelHints = []struct{ words, hint string }{
	{"redis: nil", "no Sentinel knows a master of the name that is the client's MasterName"},
	{"unknown command 'sentinel'", "SentinelAddrs names a server that is no Sentinel: " +
		"name the Sentinels, or use redis.NewClient"},
}

// Hint describes the likely mistake of the user, in parentheses. It returns "" if the error does not show a
// mistake.
func Hint(err error) string {
	if text := err.Error(); strings.Contains(text, "all sentinels specified in configuration") {
		return hintIn(sentinelHints, text)
	}
	var reply redis.Error
	if errors.As(err, new(*ValueError)) { // the name of a key in the text may contain the words of a hint
		return ""
	}
	if !errors.As(err, &reply) {
		switch {
		case errors.As(err, new(tls.RecordHeaderError)):
			return " (the server does not speak TLS: drop the client's TLSConfig)"
		case errors.Is(err, errUnshaken):
			return " (the TLS handshake was not answered within DialTimeout, DialerRetries times: " +
				"does the server speak TLS? If not, drop the client's TLSConfig)"
		case errors.Is(err, errHungUp):
			return " (the server hung up before it answered anything: " +
				"if it speaks TLS, give the client a TLSConfig; else maxclients may be reached)"
		case errors.Is(err, redis.ErrPoolTimeout):
			return " (all connections of the client were in use for its PoolTimeout: raise its PoolSize)"
		case notRedis.MatchString(err.Error()):
			return " (the server at this address speaks HTTP and is no Redis: " +
				"mend the address in the client's options)"
		case errors.Is(err, redis.ErrClosed):
			return " (close the session before its client)"
		case unmendable(err):
			return " (the address in the client's options must be HOST:PORT; " +
				"redis.ParseURL makes options of a URL)"
		case remoteTLS.MatchString(err.Error()):
			return " (the server refuses the client's certificate, or wants one: it must be valid, " +
				"and of a CA in the server's tls-ca-cert-file)"
		case errors.As(err, new(x509.UnknownAuthorityError)):
			return " (if the server's certificate is right, " +
				"put its CA into RootCAs of the client's TLSConfig)"
		}
		return ""
	}
	return hintIn(hints, reply.Error())
}

// hintIn returns, in parentheses, the first hint whose words are in the text. It returns "" if there is none.
func hintIn(hints []struct{ words, hint string }, text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, "`", "'")) // Redis 6 quotes with backticks
	for _, h := range hints {
		if strings.Contains(text, h.words) {
			return " (" + h.hint + ")"
		}
	}
	return ""
}

// marked returns an error that has the text of err, and matches both err and mark.
func marked(err, mark error) error { return failure.Worded(err.Error(), err, mark) }

var (
	// errMisdirected means that a node of a Cluster replied with a redirection, which this client does not
	// follow.
	errMisdirected = errors.New("misdirected")
	// errUnshaken means that the client could not connect, because the server did not answer the TLS
	// handshake in time. For example, Redis 7.0 without TLS does not answer, because it waits for the end of
	// a line.
	errUnshaken = errors.New("no TLS handshake")
	// errHungUp means that a server has closed the connection, and that no request of this client was ever
	// answered.
	errHungUp = errors.New("the server hung up")
	// errNotRedis means that an HTTP server has answered, and that no server of this client ever answered as
	// Redis does. The HTTP server did not run the request. If a Redis has answered before, the answer of an
	// HTTP server counts as an outage instead, because a proxy may return an error page while it cannot reach
	// its Redis.
	errNotRedis = errors.New("the server speaks HTTP")
)

// Explain returns err, the error of a request. If client and server may not agree about TLS, or the server
// may be no Redis, the result has a mark that Hint and Judge recognize. ctx is the context of the request.
// secure is true if the client speaks TLS. answered is true if a server of this client has ever answered a
// request.
func Explain(ctx context.Context, err error, secure, answered bool) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case secure && is(context.DeadlineExceeded) && ctx.Err() == nil && !errors.As(err, new(*net.OpError)):
		// err is about the deadline of the dialer in go-redis. An error about the deadline of a socket would
		// contain a *net.OpError.
		return marked(err, errUnshaken)
	case !secure && !answered && hungUp(err):
		return marked(err, errHungUp)
	case err != nil && !answered && notRedis.MatchString(err.Error()):
		return marked(err, errNotRedis)
	}
	return err
}

// hungUp reports whether a request failed because the server has closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Client has the methods of a go-redis client that Lockline uses.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Check returns an error if Lockline cannot use a client.
func Check(c Client) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("the client is nil (%T)", c)
	}
	if one, ok := c.(*redis.Client); ok && reflect.ValueOf(*one).IsZero() {
		return errors.New("the client is a zero value; make one with redis.NewClient")
	}
	if several, ok := c.(*redis.ClusterClient); ok && reflect.ValueOf(several).Elem().IsZero() {
		return errors.New("the client is a zero value; make one with redis.NewClusterClient")
	}
	if _, ring := c.(*redis.Ring); ring {
		return errors.New("a *redis.Ring moves keys to another server when one fails its pings, " +
			"so two owners could hold one lock; use one session for each server (and RedLock over them), " +
			"or a Cluster")
	}
	if fmt.Sprintf("%T", c) == "*redis.AutoPipeliner" { // go-redis has this type since version 9.22
		return errors.New("a *redis.AutoPipeliner makes a holder wait for a batch to fill; " +
			"pass the client that it wraps")
	}
	return nil
}

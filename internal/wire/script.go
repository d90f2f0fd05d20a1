package wire

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
)

// Script is a Lua script whose reply is one string, and never empty.
type Script struct {
	load func() (body, sha any) // strings, boxed once
}

// NewScript makes a script of its text.
func NewScript(text string) *Script { return newScript(func() string { return text }) }

// Named is a script of package script. It is put together when it is used first: few programs use all.
func Named(name string) *Script { return newScript(func() string { return script.Text(name) }) }

func newScript(text func() string) *Script {
	return &Script{load: sync.OnceValues(func() (body, sha any) {
		text := text()
		sum := sha1.Sum([]byte(text))
		return text, hex.EncodeToString(sum[:])
	})}
}

// Digest is by what a server knows the script once it has run it.
func (sc *Script) Digest() string {
	_, sha := sc.load()
	return sha.(string)
}

// Request is a script call that go-redis sends once: it would resend up to
// three times by itself, and a resent lock request needs a new not-after.
//
// The context of the command itself stays empty: nothing reads it.
type Request struct {
	redis.StringCmd
	script *Script
}

func (*Request) NoRetry() bool { return true }

// NewRequest builds a call.
func NewRequest(sc *Script, keys, argv []any) *Request {
	_, sha := sc.load()
	args := slices.Concat([]any{"evalsha", sha, len(keys)}, keys, argv)
	return &Request{*redis.NewStringCmd(context.Background(), args...), sc}
}

// Copier makes each copy of a request. If it has a method Failed(error), that is called before the next copy
// is made.
type Copier interface{ Request(now time.Time) *Request }

// asEval makes it one for a server that does not know the script yet.
func (r *Request) asEval() {
	args := r.Args()
	args[0] = "eval"
	args[1], _ = r.script.load()
	r.reset()
}

// reset makes it one that was not sent.
func (r *Request) reset() { r.StringCmd = *redis.NewStringCmd(context.Background(), r.Args()...) }

// unanswered: there is neither an answer nor an error. No script answers with nothing.
func (r *Request) unanswered() bool { return r.Err() == nil && r.Val() == "" }

// fail gives the request an error if it was not answered.
func (r *Request) fail(err error) {
	if r.unanswered() {
		r.SetErr(err)
	}
}

func noScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

func moved(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK "))
}

package wire

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
)

// Script is a Lua script whose reply is a string that is not empty.
type Script struct {
	load func() (body, sha any) // the results are strings, and are converted to any only once
}

// NewScript returns a script with this text.
func NewScript(text string) *Script { return newScript(func() string { return text }) }

// Named returns the script of package script that has this name. Its text is assembled at the first use,
// because few programs use all scripts.
func Named(name string) *Script { return newScript(func() string { return script.Text(name) }) }

func newScript(text func() string) *Script {
	return &Script{load: sync.OnceValues(func() (body, sha any) {
		text := text()
		sum := sha1.Sum([]byte(text))
		return text, hex.EncodeToString(sum[:])
	})}
}

// Digest returns the SHA-1 by which a server knows the script after it has run it.
func (sc *Script) Digest() string {
	_, sha := sc.load()
	return sha.(string)
}

// A Request is a call of a script. Its method NoRetry keeps go-redis from sending it again after a failure.
// Otherwise go-redis would send it up to three more times, but each copy of a request for a lock needs a new
// deadline.
//
// The context of the embedded command is not used.
type Request struct {
	redis.StringCmd
	script *Script
}

func (*Request) NoRetry() bool { return true }

// NewRequest returns a call of a script with these keys and arguments.
func NewRequest(sc *Script, keys, argv []any) *Request {
	_, sha := sc.load()
	args := slices.Concat([]any{"evalsha", sha, len(keys)}, keys, argv)
	return &Request{*redis.NewStringCmd(context.Background(), args...), sc}
}

// A Copier makes the copies of a request. If it has a method Failed(error), Call passes the error of each
// copy to this method, even the error of the last copy, because another Call may send further copies.
type Copier interface{ Request(now time.Time) *Request }

// asEval makes the request send the full text, for a server that does not know the script.
func (r *Request) asEval() {
	args := r.Args()
	args[0] = "eval"
	args[1], _ = r.script.load()
	r.reset()
}

// reset removes the reply or error, so that the request can be sent again.
func (r *Request) reset() { r.StringCmd = *redis.NewStringCmd(context.Background(), r.Args()...) }

// unanswered reports whether the request has neither a reply nor an error. No script replies with an empty
// string.
func (r *Request) unanswered() bool { return r.Err() == nil && r.Val() == "" }

// fail gives the request an error if it was not answered.
func (r *Request) fail(err error) {
	if r.unanswered() {
		r.SetErr(err)
	}
}

// Replied reports whether err is an error reply of Redis that begins with code. A hook of the client may have
// wrapped the reply in another error.
func Replied(err error, code string) bool {
	return err != nil && redis.HasErrorPrefix(err, code) // HasErrorPrefix allocates memory even for nil
}

func noScript(err error) bool { return Replied(err, "NOSCRIPT") }

func moved(err error) bool { return Replied(err, "MOVED ") || Replied(err, "ASK ") }

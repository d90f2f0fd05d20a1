package engine

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script whose reply is one string.
type Script struct{ body, sha any } // strings, boxed once

// block is how many tokens a grant reserves: one for each goroutine that the lock
// may be handed to in memory. What was not used is given back with the release.
// Scripts have it as BLOCK.
const block = 1000

var (
	//go:embed prelude.lua
	prelude string
	//go:embed take.lua
	take string
	//go:embed conclude.lua
	conclude string

	included = strings.NewReplacer("-- TAKE\n", take, "-- CONCLUDE\n", conclude)
)

const preludeHere = "-- PRELUDE\n"

// NewScript is body behind the prelude and its kind's own, or with them where body says
// "-- PRELUDE": what comes before costs less.
func NewScript(body string, kind ...string) *Script {
	common, rest, ok := strings.Cut(included.Replace(body), preludeHere)
	if !ok {
		common, rest = "", common
	}
	text := fmt.Sprintf("local BLOCK = %d\n", block) + common + prelude + strings.Join(kind, "") + rest
	sum := sha1.Sum([]byte(text))
	return &Script{body: text, sha: hex.EncodeToString(sum[:])}
}

// Text is what a server is given of the script, and Digest its name from then on: for tests that look at requests.
func (sc *Script) Text() string   { return sc.body.(string) }
func (sc *Script) Digest() string { return sc.sha.(string) }

var (
	//go:embed several.lua
	several string
	//go:embed lock_several.lua
	lockSeveral string
	//go:embed release_several.lua
	releaseSeveral string
)

// NewLockSeveral makes a kind's lock script one of several locks: all or none.
func NewLockSeveral(body string) *Script { return newSeveral(body, lockSeveral) }

// NewReleaseSeveral does so with its release script.
func NewReleaseSeveral(body string) *Script { return newSeveral(body, releaseSeveral) }

func newSeveral(one, all string) *Script {
	one = strings.Replace(one, preludeHere, "", 1)
	return NewScript("local function one()\n" + one + "end\n" + several + all)
}

// request is a script call that go-redis sends once: it would resend up to
// three times by itself, and a resent lock request needs a new not-after.
//
// The context of the command itself stays empty: nothing reads it.
type request struct{ *redis.StringCmd }

func (request) NoRetry() bool { return true }

// request builds a call: keys of the lock, then argv.
func (k *Keys) request(sc *Script, argv ...any) request {
	args := make([]any, 0, 2+len(k.boxed)+len(argv))
	args = append(args, "evalsha", sc.sha)
	args = append(args, k.boxed...)
	args = append(args, argv...)
	return request{redis.NewStringCmd(context.Background(), args...)}
}

// asEval is the same request for a server that does not know the script yet.
func (r request) asEval(sc *Script) request {
	args := r.Args()
	args[0], args[1] = "eval", sc.body
	return request{redis.NewStringCmd(context.Background(), args...)}
}

func noScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// outcome is how a request ended, whichever of its copies was answered.
type outcome struct {
	reply string
	sent  time.Time // before the answered copy was sent
	// unanswered is the error of the last copy without an answer, which may have run, or may run yet.
	unanswered error
	err        error
}

// copier makes each copy of a request.
type copier interface{ request(now time.Time) request }

// tries is how often a request is sent at most: as often as go-redis does by default.
const tries = 4

// call sends a request until it is answered, most times at most. If somebody waits for the
// answer, left says that they have gone, and it is not sent again then, nor once the session closes. ctx brings a trace and may keep a
// request from being sent, but does not interrupt one that was.
func (s *Session) call(ctx context.Context, sc *Script, c copier, most int, left *atomic.Bool) (o outcome) {
	if s.quorum != nil {
		return s.quorum.call(ctx, sc, c, most, left)
	}
	for try := 1; ; try++ {
		o.sent = time.Now()
		r := c.request(o.sent)
		o.reply, o.err = s.process(ctx, r, sc, try > 1)
		o.err = refusal(o.err)
		if o.err == nil {
			return o
		}
		v := judge(o.err)
		if v.unknown {
			o.unanswered = o.err
		}
		if !v.resend || try >= most || left != nil && (left.Load() || isClosed(s.closing)) || !s.pause(backoff(try, 4*time.Millisecond, 64*time.Millisecond)) || left != nil && left.Load() {
			return o
		}
	}
}

func moved(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK "))
}

// pause reports false when the session's background work has ended.
func (s *Session) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// Scripts names, by their digests, the scripts that a lock's requests run: for tests that look at requests.
func (m *Mutex) Scripts() map[string]string {
	names := map[string]string{}
	for name, sc := range map[string]*Script{"keep": keepScript, "lock": m.p.Lock, "release": m.p.Release, "force": m.p.Force, "inspect": m.p.Inspect,
		"heartbeat": m.p.Heartbeat, "lock several": m.p.LockSeveral, "release several": m.p.ReleaseSeveral, "accept": m.p.Accept} {
		if sc != nil {
			names[sc.sha.(string)] = name
		}
	}
	return names
}

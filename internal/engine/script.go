package engine

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lockline/lockline/internal/wire"
)

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
func NewScript(body string, kind ...string) *wire.Script { return wire.NewScript(compose(body, kind)) }

func compose(body string, kind []string) string {
	common, rest, ok := strings.Cut(included.Replace(body), preludeHere)
	if !ok {
		common, rest = "", common
	}
	return fmt.Sprintf("local BLOCK = %d\n", block) + common + prelude + strings.Join(kind, "") + rest
}

var (
	//go:embed several.lua
	several string
	//go:embed lock_several.lua
	lockSeveral string
	//go:embed release_several.lua
	releaseSeveral string
)

// NewLockSeveral makes a kind's lock script one of several locks: all or none.
func NewLockSeveral(body string) *wire.Script { return newSeveral(body, lockSeveral) }

// NewReleaseSeveral does so with its release script.
func NewReleaseSeveral(body string) *wire.Script { return newSeveral(body, releaseSeveral) }

func newSeveral(one, all string) *wire.Script {
	one = strings.Replace(one, preludeHere, "", 1)
	return NewScript("local function one()\n" + one + "end\n" + several + all)
}

// request builds a call: keys of the lock, then argv.
func (k *Keys) request(sc *wire.Script, argv ...any) wire.Request {
	return wire.NewRequest(sc, k.boxed, argv...)
}

// call is Link.Call, or the same to a quorum of them.
func (s *Session) call(ctx context.Context, sc *wire.Script, c wire.Copier, most int, left *atomic.Bool) wire.Outcome {
	if s.quorum != nil {
		return s.quorum.call(ctx, sc, c, most, left)
	}
	return s.link.Call(ctx, sc, c, most, left)
}

// Scripts names, by their digests, the scripts that a lock's requests run: for tests that look at requests.
func (m *Mutex) Scripts() map[string]string {
	names := map[string]string{}
	for name, sc := range map[string]*wire.Script{"keep": keepScript, "lock": m.p.Lock, "release": m.p.Release, "force": m.p.Force, "inspect": m.p.Inspect,
		"heartbeat": m.p.Heartbeat, "lock several": m.p.LockSeveral, "release several": m.p.ReleaseSeveral, "accept": m.p.Accept} {
		if sc != nil {
			names[sc.Digest()] = name
		}
	}
	return names
}

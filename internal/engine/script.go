package engine

import (
	"context"
	"sync/atomic"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

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
	for name, sc := range map[string]*wire.Script{"keep": protocol.Keep, "lock": m.p.Lock, "release": m.p.Release, "force": m.p.Force, "inspect": m.p.Inspect,
		"heartbeat": m.p.Heartbeat, "lock several": m.p.LockSeveral, "release several": m.p.ReleaseSeveral, "accept": m.p.Accept} {
		if sc != nil {
			names[sc.Digest()] = name
		}
	}
	return names
}

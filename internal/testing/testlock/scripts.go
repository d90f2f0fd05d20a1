package testlock

import (
	"maps"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// Scripts names, by their digests, the scripts that requests of a lock of m's kind run.
func Scripts(m *rlock.Mutex) map[string]string {
	k := inner.Mutex(m).Kind()
	all := map[string]*wire.Script{"keep": protocol.Keep, "lock": k.Lock, "release": k.Release, "force": k.Force,
		"inspect": k.Inspect}
	maps.Copy(all, k.Further)
	names := map[string]string{}
	for name, sc := range all {
		if sc != nil {
			names[sc.Digest()] = name
		}
	}
	return names
}

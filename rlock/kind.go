package rlock

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
)

var kind = func() *engine.Kind {
	k := engine.NewLock(protocol.Reentrant, false)
	k.Lingers = true
	return k
}()

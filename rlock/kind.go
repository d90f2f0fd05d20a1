package rlock

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
)

var kind = engine.NewLock(protocol.Reentrant, false)

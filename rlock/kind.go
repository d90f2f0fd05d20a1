package rlock

import (
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
)

var kind = mutex.NewLock(protocol.Reentrant, false)

package rlock

import (
	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/protocol"
)

var kind = permit.NewLock(protocol.Reentrant, false)

package rlock

import (
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/queue"
)

var kind = queue.NewReentrant(protocol.Reentrant)

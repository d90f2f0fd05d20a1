package operate

import "github.com/lockline/lockline/internal/wire"

var (
	limitScript   = wire.Named("permit/limit")
	forceScript   = wire.Named("permit/force")
	inspectScript = wire.Named("permit/inspect")
)

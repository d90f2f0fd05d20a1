package permit

import "github.com/lockline/lockline/internal/wire"

// All is how many permits one takes that excludes all others: ALL in permit.lua. No limit is as high.
const All = 1_000_000_000

var (
	acquireScript = wire.Named("permit/acquire")
	releaseScript = wire.Named("permit/release")
	remainScript  = wire.Named("permit/remain")
	renewScript   = wire.Named("permit/renew")
	reduceScript  = wire.Named("permit/reduce")
)

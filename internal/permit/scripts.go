package permit

import (
	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/wire"
)

// All is how many permits one takes that excludes all others: ALL in permit.lua. No limit is as high.
const All = 1_000_000_000

var (
	acquireScript = wire.NewScript(script.Text("permit/acquire"))
	releaseScript = wire.NewScript(script.Text("permit/release"))
	renewScript   = wire.NewScript(script.Text("permit/renew"))
	reduceScript  = wire.NewScript(script.Text("permit/reduce"))
)

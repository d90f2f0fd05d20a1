package permit

import (
	_ "embed"

	"github.com/lockline/lockline/internal/wire"
)

// All is how many permits one takes that excludes all others: ALL in lua/permit.lua. No limit is as high.
const All = 1_000_000_000

var (
	//go:embed acquire.lua
	acquireText string
	//go:embed release.lua
	releaseText string
	//go:embed renew.lua
	renewText string
	//go:embed reduce.lua
	reduceText string

	acquireScript = wire.NewScript(acquireText)
	releaseScript = wire.NewScript(releaseText)
	renewScript   = wire.NewScript(renewText)
	reduceScript  = wire.NewScript(reduceText)
)

// Scripts are all of them, by name, for tests that look at requests.
func Scripts() map[string]*wire.Script {
	return map[string]*wire.Script{"acquire": acquireScript, "release": releaseScript, "renew": renewScript, "reduce": reduceScript}
}

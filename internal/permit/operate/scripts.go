package operate

import (
	_ "embed"

	"github.com/lockline/lockline/internal/wire"
)

var (
	//go:embed limit.lua
	limitText string
	//go:embed force.lua
	forceText string
	//go:embed inspect.lua
	inspectText string

	limitScript   = wire.NewScript(limitText)
	forceScript   = wire.NewScript(forceText)
	inspectScript = wire.NewScript(inspectText)
)

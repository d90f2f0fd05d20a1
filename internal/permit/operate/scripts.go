package operate

import (
	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/wire"
)

var (
	limitScript   = wire.NewScript(script.Text("permit/limit"))
	forceScript   = wire.NewScript(script.Text("permit/force"))
	inspectScript = wire.NewScript(script.Text("permit/inspect"))
)

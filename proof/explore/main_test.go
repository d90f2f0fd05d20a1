package explore

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"go.uber.org/goleak"
)

var (
	only   = flag.String("world", "", "explores this world, or all, instead of the small ones")
	most   = flag.Int("states", 1_000_000, "how many states of a world are visited at most")
	atMost = flag.Duration("for", 10*time.Minute, "how long a world is explored at most")
	bound  = flag.Int("detours", -1, "bounds the detours, instead of the world's bound; 0: there is no bound")
	replay = flag.String("replay", "", "takes these steps, with ; between them, instead of exploring")
)

func TestMain(m *testing.M) {
	// The goroutines of a run take turns. On one processor, this is several times as fast, because no other
	// processor has to be woken, and their order is nearly always the same.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	engine.CheckInvariants(func(err error) { panic(err) })
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

package sim_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/proof/sim"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run of each kind; 0: some, "+
		"that take about 4 s of processor time")
	from   = flag.Int64("from", 1, "the first of the seeds")
	seed   = flag.Int64("seed", -1, "the one seed to run")
	events = flag.Int("events", 100, "how many events to print of a seed that has failed")
	first  = flag.Bool("first", false, "stop at the first seed that fails")
	again  = flag.Int("again", 5, "how often to run a seed again that has failed")
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // go-redis logs each dial that fails
	debug.SetGCPercent(400)    // the worlds are small and make much garbage
	engine.CheckInvariants(func(err error) { panic(err) })
	goleak.VerifyTestMain(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// In the simulated worlds, processes and servers crash, networks lose and delay messages and cut connections,
// servers lose data, and the clocks of servers differ. The locks must keep their promises. When the faults
// have ended, the locks must work as before.
// Proves: exclusion
func TestSimulatedWorldsKeepEveryPromise(t *testing.T) {
	for _, k := range sim.Kinds {
		t.Run(k.Name, func(t *testing.T) { simulate(t, k) })
	}
}

func simulate(t *testing.T, k sim.Kind) {
	var counts sim.Counts
	var failed atomic.Bool
	run := func(t *testing.T, seed int64) {
		if *first && failed.Load() {
			return
		}
		failure := sim.Run(t, k, seed, &counts)
		if failure == nil || failed.Swap(true) && *first {
			return
		}
		tried := counts.Of("seeds")
		// The seed does not decide the order of goroutines that wake up at the same instant.
		more := 0
		for range *again {
			if sim.Run(t, k, seed, &counts) != nil {
				more++
			}
		}
		t.Errorf("seed %d, the %dth; it failed again in %d of %d runs of\n"+
			"go test ./proof/sim -run 'Simulated/^%s$' -seed %d\n%s\n%s",
			seed, tried, more, *again, k.Name, seed, failure.What, failure.Log(*events))
	}
	t.Run("seeds", func(t *testing.T) {
		if *seed >= 0 {
			run(t, *seed)
			return
		}
		for i := range int64(cmp.Or(*seeds, k.Seeds)) {
			t.Run(fmt.Sprint(*from+i), func(t *testing.T) {
				t.Parallel()
				run(t, *from+i)
			})
		}
	})
	t.Logf("%s: %v", k.Name, &counts)
	if counts.Of("entries") < 10_000 || *first { // too few entries for rare events
		return
	}
	for _, what := range k.Vital() {
		if counts.Of(what) == 0 {
			t.Errorf("there is no %q in all seeds", what)
		}
	}
}

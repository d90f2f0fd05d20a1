package history_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/internal/history"
	"github.com/lockline/lockline/internal/testredis"
)

var long = flag.Duration("for", 4*time.Second, "how long the processes of each history play")

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func play(t *testing.T, kind string, args ...string) *history.Record {
	t.Helper()
	server := testredis.Start(t, args...)
	stage := history.Stage{
		Assignment: history.Assignment{Seed: rand.Uint64(), Prefix: "lockline", Kinds: []string{kind}, Names: 1, Lease: 800 * time.Millisecond, Goroutines: 2},
		T:          t,
		URLs:       []string{"redis://" + server.Addr},
		Servers:    []*testredis.Server{server},
		Command:    actor,
		Processes:  3,
		Faults:     history.Faults,
		Pace:       200 * time.Millisecond,
	}
	r, err := stage.Run(t.Context(), *long)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Wrong {
		t.Error(w)
	}
	return r
}

// What processes see that are killed and frozen, of a server that is frozen and killed, over a network
// that loses requests and replies, is what each of the four mutexes could have shown them.
func TestWhateverFailsAProcessSeesAReentrantFencedMutex(t *testing.T) {
	for _, kind := range []string{history.Reentrant, history.Fair} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, kind, durable...)
			holds := history.Holds(r.Ops)
			lost, nested := 0, 0
			for _, h := range holds {
				if h.Lost {
					lost++
				}
				nested += h.Nested
			}
			t.Logf("%d holds, %d lost, %d nested holds, %d acquisitions failed; %v", len(holds), lost, nested, r.Failed, r.Faults)
			if len(holds) < 100 || nested < 10 {
				t.Error("this shows nothing")
			}
			for _, m := range []struct {
				name              string
				reentrant, fenced bool
				ops               []history.Op
			}{
				{"mutex", false, false, history.Outermost(r.Ops)},
				{"reentrant mutex", true, false, r.Ops},
				{"fenced mutex", false, true, history.Outermost(r.Ops)},
				{"reentrant fenced mutex", true, true, r.Ops},
			} {
				model := history.Model(m.reentrant, m.fenced)
				if result := porcupine.CheckOperationsTimeout(model, history.Operations(m.ops), time.Minute); result != porcupine.Ok {
					t.Errorf("not a %s: %v", m.name, result)
				}
			}
			if v := history.Judge(holds); v != (history.Verdict{}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A server that restarts without its data forgets who holds. Mutual exclusion falls then, as on every single Redis: until the
// holder hears of it. The tokens still say who came later.
func TestAServerThatForgetsBreaksExclusionAndNotTheOrderOfTokens(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{history.Reentrant, history.Fair} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, kind)
			holds := history.Holds(r.Ops)
			v := history.Judge(holds)
			t.Logf("%d holds; with %d restarts without data, mutual exclusion fell %d times; tokens out of order: %d", len(holds), r.Faults[history.ServerRestart], v.Overlaps, v.Unfenced)
			if len(holds) < 100 {
				t.Error("this shows nothing")
			}
			if v.Unfenced > 0 || v.Strange > 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

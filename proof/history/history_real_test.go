package history_test

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
	"github.com/lockline/lockline/rlock"
)

var rounds = flag.Int("rounds", 2, "how often each fault happens in each history")

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// newStage starts as many servers as the kind needs. The leases are short, so some may expire on a busy
// machine. Such a loss is judged like any other loss.
func newStage(t *testing.T, kind string, args ...string) *history.Stage {
	stage := &history.Stage{
		Assignment: history.Assignment{Seed: rand.Uint64(), Prefix: "lockline",
			Kinds: []string{kind}, Names: 1,
			Lease: 600 * time.Millisecond, Goroutines: 2},
		T:         t,
		Command:   actor,
		Processes: 3,
		Pace:      150 * time.Millisecond,
	}
	for range max(1, map[string]int{history.Multi: 2, history.Red: 3}[kind]) {
		server := testredis.Start(t, args...)
		stage.Servers = append(stage.Servers, server)
		stage.URLs = append(stage.URLs, "redis://"+server.Addr)
	}
	return stage
}

// play runs processes until each fault has happened *rounds times, and the record has 200 operations for each
// round.
func play(t *testing.T, kind string, faults []history.Fault, args ...string) *history.Record {
	t.Helper()
	stage := newStage(t, kind, args...)
	stage.Faults = faults
	return perform(t, stage, func(r *history.Record) bool { return len(r.Ops) >= 200**rounds })
}

// perform runs the stage until each of its faults has happened *rounds times and enough returns true.
func perform(t *testing.T, stage *history.Stage, enough func(*history.Record) bool) *history.Record {
	t.Helper()
	r, err := stage.Run(t.Context(), func(r *history.Record) bool {
		for _, f := range stage.Faults {
			if r.Faults[f] < *rounds {
				return false
			}
		}
		return enough(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Wrong {
		t.Error(w.Kind, w.Error)
	}
	return r
}

// Processes are killed and frozen, servers are frozen and killed, and the network loses requests and replies.
// The models of a mutex, a reentrant mutex, a fenced mutex and a reentrant fenced mutex must accept each
// history.
// Proves: exclusion, RedLock
func TestWhateverFailsAProcessSeesAReentrantFencedMutex(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{history.Reentrant, history.Fair, history.Multi, history.Red} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, kind, history.Faults, durable...)
			holds := history.Holds(r.Ops)
			lost, nested := 0, 0
			for _, h := range holds {
				if h.Lost {
					lost++
				}
				nested += h.Nested
			}
			t.Logf("%d holds, %d lost, %d nested holds, %d acquisitions failed; %v",
				len(holds), lost, nested, r.Failed, r.Faults)
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
				if result := porcupine.CheckOperationsTimeout(model, history.Operations(m.ops),
					time.Minute); result != porcupine.Ok {
					t.Errorf("not a %s: %v", m.name, result)
				}
			}
			if v := history.Judge(holds); v != (history.Verdict{}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A server that restarts without its data loses its locks. Two owners can then hold a lock at the same time,
// as with any single Redis. The first owner notices its loss by its next request. The later owner must have
// the higher token.
// Proves: tokens
func TestAServerThatForgetsBreaksExclusionAndNotTheOrderOfTokens(t *testing.T) {
	t.Parallel()
	for kind, judge := range map[string]func([]history.Hold) history.Verdict{
		history.Reentrant: history.Judge, history.Fair: history.Judge,
		history.ReadWrite: history.JudgeReadWrite,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, kind, []history.Fault{history.ServerRestart, history.LostReplies, history.Kill})
			holds := history.Holds(r.Ops)
			v := judge(holds)
			t.Logf("%d restarts without data; of %d holds, %d began while another was considered valid; "+
				"%d tokens out of order",
				r.Faults[history.ServerRestart], len(holds), v.Overlaps, v.Unfenced)
			if v.Unfenced > 0 || v.Strange > 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// If each process has locks of its own, the judge of each kind finds overlaps, and the model rejects the
// history.
func TestWhereProcessesShareNothingItIsNoticedOfEachKind(t *testing.T) {
	t.Parallel()
	models := map[string]porcupine.Model{
		history.Reentrant: history.Model(false, false), history.Fair: history.Model(false, false),
		history.ReadWrite: history.ReadWriteModel(),
		history.Semaphore: history.SemaphoreModel(history.Permits),
	}
	for _, kind := range history.Kinds(3) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			stage := newStage(t, kind)
			stage.Alone = true
			// The record of a count-down does not show to which run of the latch it belongs. With fewer
			// count-downs, the judge finds an overlap sooner.
			if kind == history.Latch {
				stage.Processes, stage.Goroutines = 2, 1
			}
			r, err := stage.Run(t.Context(), func(r *history.Record) bool {
				return history.JudgeAll(r.Ops).Overlaps > 0
			})
			if err != nil || len(r.Wrong) > 0 {
				t.Fatal(err, r.Wrong)
			}
			ops := r.Ops
			if kind == history.Reentrant || kind == history.Fair {
				ops = history.Outermost(ops)
			}
			if model, ok := models[kind]; ok && porcupine.CheckOperations(model, history.Operations(ops)) {
				t.Errorf("the judge says %+v, and the model accepts it", history.JudgeAll(r.Ops))
			}
		})
	}
}

// A server that loses its data breaks exclusion. The judge and the model must find that.
// Proves: exclusion, tokens
func TestAHoldThatTheServerForgotOverlapsTheNextOneAndItsTokenIsSmaller(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	var ops []history.Op
	acquire := func(owner string) *rlock.Hold {
		s, err := rlock.NewSession(server.Client(t), rlock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		call := time.Now().UnixNano()
		_, hold, err := rlock.New(s, "x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, history.Op{Lock: "x", Owner: owner, Kind: history.Acquire, Token: hold.Token(),
			Call: call, Return: time.Now().UnixNano()})
		return hold
	}
	release := func(owner string, hold *rlock.Hold) {
		if hold.Err() != nil {
			t.Errorf("it knows of its loss too early for this test: %v", hold.Err())
		}
		at := time.Now().UnixNano()
		ops = append(ops, history.Op{Lock: "x", Owner: owner, Kind: history.Release, Token: hold.Token(),
			Call: at, Return: at})
	}
	first := acquire("first")
	server.Restart(t)
	second := acquire("second")
	release("first", first)
	release("second", second)
	if v := history.Judge(history.Holds(ops)); v.Overlaps != 1 || v.Unfenced > 0 || v.Strange > 0 {
		t.Errorf("%+v", v)
	}
	if porcupine.CheckOperations(history.Model(false, false), history.Operations(ops)) {
		t.Error("two holders are no violation to the model")
	}
}

package history_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// primitive is what a history is judged by that is not of mutexes.
type primitive struct {
	kind  string
	model porcupine.Model
	judge func([]history.Hold) history.Verdict
}

var primitives = []primitive{
	{history.ReadWrite, history.ReadWriteModel(), history.JudgeReadWrite},
	{history.Semaphore, history.SemaphoreModel(history.Permits), judgeSemaphore},
}

func judgeSemaphore(holds []history.Hold) history.Verdict {
	return history.JudgeSemaphore(holds, history.Permits)
}

// together counts the holds that were granted while another was held.
func together(holds []history.Hold) (n int) {
	end := int64(0)
	for _, h := range holds {
		if h.Return < end {
			n++
		}
		end = max(end, h.End)
	}
	return n
}

// As with mutexes, what processes see among faults is what a read-write lock and a semaphore could have shown them.
func TestWhateverFailsAProcessSeesAReadWriteLockAndASemaphore(t *testing.T) {
	for _, p := range primitives {
		t.Run(p.kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, p.kind, history.Faults, durable...)
			holds := history.Holds(r.Ops)
			lost, nested, reads, downgrades := 0, 0, 0, 0
			for _, h := range holds {
				if h.Lost {
					lost++
				}
				if h.Read {
					reads++
				}
				if h.Downgrade != 0 {
					downgrades++
				}
				nested += h.Nested
			}
			t.Logf("%d ops, %d holds (%d beside others), %d lost, %d nested holds, %d of readers, %d writers became readers, %d acquisitions failed; %v",
				len(r.Ops), len(holds), together(holds), lost, nested, reads, downgrades, r.Failed, r.Faults)
			if r.Gone > 0 {
				t.Errorf("%d holds were unknown to Redis before their deadlines", r.Gone)
			}
			if together(holds) == 0 || p.kind == history.ReadWrite && (downgrades == 0 || nested == 0) {
				t.Error("this shows too little")
			}
			if result := porcupine.CheckOperationsTimeout(p.model, history.Operations(r.Ops), time.Minute); result != porcupine.Ok {
				t.Errorf("not a %s: %v", p.kind, result)
			}
			if v := p.judge(holds); v != (history.Verdict{}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// As with mutexes, a server that forgets breaks the exclusion, and not the order of tokens.
func TestAServerThatForgetsDoesNotBreakTheOrderOfTokensOfAReadWriteLock(t *testing.T) {
	r := play(t, history.ReadWrite, []history.Fault{history.ServerRestart, history.LostReplies, history.Kill})
	holds := history.Holds(r.Ops)
	v := history.JudgeReadWrite(holds)
	t.Logf("%d restarts without data; of %d holds, %d began while another was considered valid; %d tokens out of order", r.Faults[history.ServerRestart], len(holds), v.Overlaps, v.Unfenced)
	if v.Unfenced > 0 || v.Strange > 0 {
		t.Errorf("%+v", v)
	}
}

// The processes see it where there is nothing that they have in common.
func TestAReadWriteLockAndASemaphoreThatExcludeNobodyAreNoticed(t *testing.T) {
	for _, p := range primitives {
		t.Run(p.kind, func(t *testing.T) {
			stage := newStage(t, p.kind)
			stage.Alone = true
			r, err := stage.Run(t.Context(), func(r *history.Record) bool { return p.judge(history.Holds(r.Ops)).Overlaps > 0 })
			if err != nil || len(r.Wrong) > 0 {
				t.Fatal(err, r.Wrong)
			}
			if porcupine.CheckOperations(p.model, history.Operations(r.Ops)) {
				t.Errorf("the judge says %+v, and the model accepts it", p.judge(history.Holds(r.Ops)))
			}
		})
	}
}

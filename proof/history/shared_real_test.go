package history_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// A primitive is a kind of locks, with its model and its judge.
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

// together counts the holds that began while another hold had not ended.
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

// The model and the judge must accept the histories of read-write locks and semaphores while faults happen,
// as they do with mutexes.
// Proves: semaphore, read-write lock
func TestWhateverFailsAProcessSeesAReadWriteLockAndASemaphore(t *testing.T) {
	t.Parallel()
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
			t.Logf("%d ops, %d holds (%d beside others), %d lost, %d nested holds, %d of readers, "+
				"%d writers became readers, %d acquisitions failed; %v",
				len(r.Ops), len(holds), together(holds), lost, nested, reads, downgrades, r.Failed, r.Faults)
			if r.Gone > 0 {
				t.Errorf("%d holds were unknown to Redis before their deadlines", r.Gone)
			}
			if together(holds) == 0 || p.kind == history.ReadWrite && (downgrades == 0 || nested == 0) {
				t.Error("this shows too little")
			}
			if result := porcupine.CheckOperationsTimeout(p.model, history.Operations(r.Ops),
				time.Minute); result != porcupine.Ok {
				t.Errorf("not a %s: %v", p.kind, result)
			}
			if v := p.judge(holds); v != (history.Verdict{}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// The judges must accept the histories of latches and elections while faults happen.
// Proves: latch, election
func TestWhateverFailsAProcessSeesALatchAndAnElection(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{history.Latch, history.Election} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := play(t, kind, history.Faults, durable...)
			seen := map[history.Kind]int{}
			for _, op := range r.Ops {
				seen[op.Kind]++
			}
			t.Logf("%v, %d failed; %v", seen, r.Failed, r.Faults)
			if v := history.JudgeAll(r.Ops); v != (history.Verdict{}) {
				t.Errorf("%+v", v)
			}
			if kind == history.Latch && min(seen[history.Set], seen[history.Wait]) < 10 {
				t.Error("this shows too little")
			}
			if kind == history.Election && porcupine.CheckOperationsTimeout(history.Model(false, true),
				history.Operations(r.Ops), time.Minute) != porcupine.Ok {
				t.Error("these are no leaders one after another")
			}
		})
	}
}

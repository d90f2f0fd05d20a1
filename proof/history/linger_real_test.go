package history_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// Sessions that linger keep a released lock for a while. The histories of such sessions must be correct, too,
// while faults happen.
// Proves: exclusion, tokens
func TestWhateverFailsALockMayStayWhereItIsUsed(t *testing.T) {
	t.Parallel()
	mutex := primitive{history.Reentrant, history.Model(true, true), history.Judge}
	for _, p := range append([]primitive{mutex}, primitives...) {
		t.Run(p.kind, func(t *testing.T) {
			t.Parallel()
			stage := newStage(t, p.kind, durable...)
			stage.Faults, stage.Linger = history.Faults, 10*time.Millisecond
			r := perform(t, stage, func(r *history.Record) bool {
				return kept(history.Holds(r.Ops)) >= 10**rounds
			})
			holds := history.Holds(r.Ops)
			t.Logf("%d holds, %d of them of a grant that no goroutine had; %v",
				len(holds), kept(holds), r.Faults)
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

// kept counts the holds that a session granted without the server, because it had kept the lock. Before the
// call of Lock for such a hold, a hold with the same token or the next lower token had ended.
func kept(holds []history.Hold) (n int) {
	ends := map[int64]int64{} // end of the last hold with each token
	slices.SortFunc(holds, func(a, b history.Hold) int { return cmp.Compare(a.Call, b.Call) })
	for _, h := range holds {
		if before := max(ends[h.Token], ends[h.Token-1]); before > 0 && before < h.Call {
			n++
		}
		ends[h.Token] = max(ends[h.Token], h.End)
	}
	return n
}

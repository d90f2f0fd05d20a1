package history_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// Among faults, the histories are correct as well if sessions linger: they keep a released lock for a while.
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

// kept counts the holds that a session granted from a lock that it had kept, so without a grant by the
// server: before the call, a hold with the same token or the next smaller one had ended.
func kept(holds []history.Hold) (n int) {
	ends := map[int64]int64{} // by token, the end of the last hold
	slices.SortFunc(holds, func(a, b history.Hold) int { return cmp.Compare(a.Call, b.Call) })
	for _, h := range holds {
		if before := max(ends[h.Token], ends[h.Token-1]); before > 0 && before < h.Call {
			n++
		}
		ends[h.Token] = max(ends[h.Token], h.End)
	}
	return n
}
